"""Look at images with a trained encoder: `python launch/look.py STUDY` or `python launch/look.py CHECKPOINT`.

It writes a page, index.html, with pictures: the least and most certain images of each class, queries with the images in
their credible intervals, Recall@1 as the least certain images are rejected, and kappa against annotators and crops. The
page needs no network.
"""

import argparse
from pathlib import Path

from launch.shared.command import SKIP_BAD_HELP, Parser, device_flag, run
from launch.shared.common_flags import encoder_flags


def main() -> None:
    """Parse the command line, look and write."""
    given = vars(_parser().parse_args())
    given["storage"].require_source(given["source"])
    from launch.viewing.image_page import write_page  # noqa: PLC0415  -h and a misspelt study answer at once

    write_page(**given)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    encoder_flags(parser)
    parser.add_argument("--data", help="images to look at instead of the run's test images")
    parser.add_argument("--skip-bad", action="store_true", help=SKIP_BAD_HELP)
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder for the page (default: look/ in the "
                        "study's folder or next to the checkpoint)")  # fmt: skip
    device_flag(parser)
    return parser


if __name__ == "__main__":
    run(main)
