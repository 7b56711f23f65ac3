"""Check the records of a study, `python launch/verify.py STUDY`, or of all studies, `python launch/verify.py`.

Trial folders, reports, checkpoints, result files and MLflow's runs must agree: nothing lost, duplicated or orphaned. It
prints what is wrong and how to repair it, and changes nothing. Exit code: 0 if all is sound, 1 if not, 2 if there is no
such study or a process is working on it.
"""

import argparse
import sys
from pathlib import Path

from launch.shared.command import Parser, run
from launch.shared.common_flags import json_flag, only_json_on_stdout, storage_flag, tracking_flag


def main() -> None:
    """Parse the command line and verify."""
    given = _parser().parse_args()
    if given.is_json:
        only_json_on_stdout()
    if given.study and not Path(given.study).is_dir():
        given.storage.require_study(given.study)
    from launch.viewing.verification import VerifyRequest, verify_studies  # noqa: PLC0415  typing errors first

    if not verify_studies(VerifyRequest(given.study, given.storage, given.tracking_uri, given.is_json)):
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument("study", nargs="?", metavar="STUDY|STORAGE", help="a study's name, folder or address, or a "
                        "folder or store of studies (default: all of --storage)")  # fmt: skip
    storage_flag(parser)
    tracking_flag(parser)
    json_flag(parser)
    return parser


if __name__ == "__main__":
    run(main)
