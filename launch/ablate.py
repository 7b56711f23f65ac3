"""Vary one thing and see what it does: `python launch/ablate.py --ablation mc_samples`.

Every variant has the same seeds, and with them the same generators, folds, evaluation sets and first weights, so that
differences from the baseline are taken seed by seed. It ends with a table of them, in runs/STUDY/ and in MLflow, where
the board shows it. What any study has run already is not run again. Killed or stopped, `--resume` goes on.
"""

import argparse

from launch.shared.command import Parser, run, say
from launch.shared.job_submission import is_sent
from launch.studies.requests import StudyRequest
from launch.studies.study_flags import config_request, how_flags, run_request, study_choice, what_flags, where_flags


def main() -> None:
    """Parse the command line, then list, plan or run."""
    arguments = _parser().parse_args()
    if arguments.list:
        _list()
    elif not is_sent("ablate", arguments.address, arguments.storage, arguments.plan):
        from launch.studies.ablate_command import run_ablation  # noqa: PLC0415  -h answers at once

        run_ablation(request_of(arguments))


def request_of(arguments: argparse.Namespace) -> StudyRequest:
    """Return what the command line asks for."""
    study = study_choice(arguments, ("ablation",))
    return StudyRequest(arguments.ablation, study, config_request(arguments), run_request(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="ablate.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_argument_group("what to vary")
    what.add_argument(
        "--ablation", metavar="NAME|FILE", help="one of search_spaces/ablations/, or a file with ABLATION"
    )
    what.add_argument("--list", action="store_true", help="print the ablations and stop")
    what_flags(what, "of every variant (default: 4,5,6,7,8; the first three at quick, two at smoke)")
    how_flags(parser, "ablation, images, scale and time")
    where_flags(parser)
    return parser


def _list() -> None:
    from pcl.studies.space.ablation import ablation_names, load_ablation  # noqa: PLC0415  -h answers at once

    for name in ablation_names():
        ablation = load_ablation(name)
        say(f"{name:<18}{len(ablation.variants):>3} variants of {ablation.axis:<16}{ablation.question}")


if __name__ == "__main__":
    run(main)
