"""Search a space on Ray and record every trial in MLflow: `python launch/grid.py --space toy_mcinfonce`.

It prints what will run and how long it will take, shows progress, and ends with a ranked table, the winner in
runs/STUDY/best.yaml, and all trials in MLflow. If it is killed or stopped at any time, `--resume` continues it.
"""

import argparse

from launch.shared.command import Parser, run, say, whole_number
from launch.shared.common_flags import json_flag
from launch.shared.job_submission import is_sent
from launch.studies.requests import StudyRequest
from launch.studies.study_flags import (
    OF_SEARCH,
    answer_json,
    config_request,
    how_flags,
    run_request,
    search_request,
    study_choice,
    study_name,
    what_flags,
    where_flags,
)
from pcl.studies.space.declarations import SPACES


def main() -> None:
    """Parse the command line, then list, plan or run."""
    arguments = _parser().parse_args()
    answer_json(arguments)
    if arguments.list:
        for name, title in SPACES.titles().items():
            say(f"{name:<26}{title}")
    elif not is_sent("grid", arguments.address, arguments.storage, arguments.plan):
        request = request_of(arguments)
        request.check()
        from launch.studies.grid_command import run_grid  # noqa: PLC0415  -h, --list and typing errors answer at once

        run_grid(request)


def request_of(arguments: argparse.Namespace) -> StudyRequest:
    """Return what the command line asks for."""
    return StudyRequest(
        arguments.space, study_choice(arguments, ("space", *OF_SEARCH)),
        config_request(arguments, SPACES, arguments.space), run_request(arguments), search_request(arguments),
        arguments.is_json,
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    what = parser.add_argument_group("what to search")
    what.add_argument("--space", metavar="NAME|FILE", help="one of --list, or a file that defines SPACE")
    what.add_argument("--list", action="store_true", help="print the spaces and stop")
    what_flags(what, "tuning seeds (default: the space's; at quick and smoke, only its first)")
    search = parser.add_argument_group("how to search")
    search.add_argument("--search", choices=["grid", "random", "optuna"], help="default: grid, which runs all cells")
    search.add_argument("--trials", type=whole_number, metavar="N", help="trials of each stage of a random or Optuna "
                        "search (default: a tenth of the grid, from 10 to 100; the plan shows it)")  # fmt: skip
    search.add_argument(
        "--search-seed", type=int, metavar="SEED", help="seed of the draws and the sampler (default: 0)"
    )
    search.add_argument("--sampler", choices=["tpe", "gp"], help="Optuna's sampler: tree-structured Parzen estimator "
                        "(default) or Gaussian process")  # fmt: skip
    search.add_argument("--warm-start", type=study_name, metavar="STUDY", help="study whose trials Optuna starts with")
    search.add_argument("--scheduler", choices=["none", "asha", "pbt"], help="asha: stop trials early if they fall "
                        "behind (default: none; pbt is refused with the reason)")  # fmt: skip
    search.add_argument("--replicate", choices=["auto"], help="more seeds for the best trials of each stage until "
                        "it is clear which is best (the plan gives the rule)")  # fmt: skip
    search.add_argument("--objectives", metavar="METRIC,METRIC", help="metrics of a Pareto front; the first decides "
                        "(default: the space's)")  # fmt: skip
    how = how_flags(parser, "space, images, scale and time")
    how.add_argument("--finalize", action=argparse.BooleanOptionalAction, help="run the best on the report seeds "
                     "(default: at scale paper)")  # fmt: skip
    json_flag(how)
    where_flags(parser)
    return parser


if __name__ == "__main__":
    run(main)
