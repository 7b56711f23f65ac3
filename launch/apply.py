"""Apply a trained encoder to a folder of images: `python launch/apply.py STUDY FOLDER`, or a CHECKPOINT for the study.

It writes tables of every image's mu, kappa and 95% credible angle, the most ambiguous first, as CSV and Parquet; near
duplicates and outliers; and a page, index.html, with thumbnails. Subfolders are classes: it reports their Recall@1 as
the least certain images are rejected. Any number of images fits in memory: pixels are held one batch at a time.
"""

import argparse
from pathlib import Path

from launch.shared.command import Parser, device_flag, run, whole_number
from launch.shared.common_flags import encoder_flags


def main() -> None:
    """Parse the command line, apply and write."""
    given = vars(_parser().parse_args())
    given["storage"].require_source(given["source"])
    from launch.viewing.application import apply_to_folder  # noqa: PLC0415  -h and a misspelt study answer at once

    apply_to_folder(**given)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    encoder_flags(parser)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder of images of any size, also in subfolders")
    parser.add_argument("--batch-size", type=whole_number, help="images decoded at once (default: 500)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder for the results (default: apply/NAME in "
                        "the study's folder or next to the checkpoint; NAME is the images' folder)")  # fmt: skip
    device_flag(parser)
    return parser


if __name__ == "__main__":
    run(main)
