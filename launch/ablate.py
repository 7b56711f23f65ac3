"""Vary one thing and see what it does: `python launch/ablate.py --ablation mc_samples`.

Every variant has the same seeds, and with them the same generators, folds, evaluation sets and first weights, so that
differences from the baseline are taken seed by seed. Their table goes to runs/STUDY/ and to MLflow, where the board
shows it. Trials that any study has already run are not run again. If it is killed or stopped, `--resume` continues it.
"""

import argparse

from launch.shared.command import Parser, run, say
from launch.shared.common_flags import json_flag
from launch.shared.job_submission import is_sent
from launch.studies.requests import StudyRequest
from launch.studies.study_flags import (
    answer_json,
    config_request,
    how_flags,
    run_request,
    study_choice,
    what_flags,
    where_flags,
)
from pcl.studies.space.declarations import ABLATIONS


def main() -> None:
    """Parse the command line, then list, plan or run."""
    arguments = _parser().parse_args()
    answer_json(arguments)
    if arguments.list:
        for name, title in ABLATIONS.titles().items():
            say(f"{name:<24}{title}")
    elif not is_sent("ablate", arguments.address, arguments.storage, arguments.plan):
        request = request_of(arguments)
        request.check()
        from launch.studies.ablate_command import run_ablation  # noqa: PLC0415  -h, --list, typing errors answer at once

        run_ablation(request)


def request_of(arguments: argparse.Namespace) -> StudyRequest:
    """Return what the command line asks for."""
    study = study_choice(arguments, ("ablation",))
    config = config_request(arguments, ABLATIONS, arguments.ablation)
    return StudyRequest(arguments.ablation, study, config, run_request(arguments), is_json=arguments.is_json)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    what = parser.add_argument_group("what to vary")
    what.add_argument("--ablation", metavar="NAME|FILE", help="one of --list, or a file that defines ABLATION")
    what.add_argument("--list", action="store_true", help="print the ablations and stop")
    what_flags(what, "seeds of every variant (default: 4,5,6,7,8; the first three at quick, two at smoke)")
    json_flag(how_flags(parser, "ablation, images, scale and time"))
    where_flags(parser)
    return parser


if __name__ == "__main__":
    run(main)
