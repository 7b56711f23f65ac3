"""Look at images with a trained encoder: `python launch/look.py STUDY` or `python launch/look.py CHECKPOINT`.

It writes a page, index.html, with pictures: the least and most certain images of each class, queries with the images in
their credible intervals, Recall@1 when the least certain images are rejected, kappa against annotators and crops. The
page needs no network.
"""

import argparse
from pathlib import Path

from launch.shared.command import SKIP_BAD_HELP, Parser, device_flag, run
from pcl.studies.ledger.study_storage import Storage


def main() -> None:
    """Parse the command line, look and write."""
    given = vars(_parser().parse_args())
    from launch.viewing.image_page import write_page  # noqa: PLC0415  -h answers at once

    write_page(**given)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument("source", metavar="STUDY|CHECKPOINT", help="a study's name, folder or address, of which the "
                        "winner is taken, or a checkpoint of train.py or of a trial")  # fmt: skip
    parser.add_argument("--storage", type=Storage.of, default=Storage.of("runs"), metavar="FOLDER|URI",
                        help="of studies: a folder or a store such as s3://BUCKET/PREFIX (default: runs)")  # fmt: skip
    parser.add_argument("--data", help="images to look at instead of the run's test images")
    parser.add_argument("--skip-bad", action="store_true", help=SKIP_BAD_HELP)
    parser.add_argument("--seed", type=int, help="seed of the checkpoint (default: the first that has not failed)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="of the page (default: look/ in the study's "
                        "folder or beside the checkpoint)")  # fmt: skip
    device_flag(parser)
    return parser


if __name__ == "__main__":
    run(main)
