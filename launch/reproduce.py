"""Compare the paper's tables and figures with ours: `python launch/reproduce.py --table bench_results`.

It trains what MLflow does not have yet, reads the rest, and prints published | ours | difference in combined standard
errors | verdict. The same goes to STORAGE/reproduce/ as text, Markdown, CSV, LaTeX and HTML, with the figures drawn.
If it is stopped at any time, the same command continues it.
"""

import argparse
from pathlib import Path

from launch.reproduction.table_choice import chosen_tables
from launch.shared.command import Parser, run, say
from launch.shared.common_flags import json_flag
from launch.shared.job_submission import is_sent
from launch.studies.requests import ReproductionRequest
from launch.studies.study_flags import answer_json, config_request, run_request, running_flags, what_flags, where_flags
from pcl.studies.paper.published import published_titles


def main() -> None:
    """Parse the command line, then list, plan or run."""
    arguments = _parser().parse_args()
    answer_json(arguments)
    if arguments.list:
        for name, title in published_titles().items():
            kind, _, short = name.partition(":")
            say(f"{'--table' if kind == 'tab' else '--figure':<9}{short:<20}{title}")
    elif not is_sent("reproduce", arguments.address, arguments.storage, arguments.plan):
        request = request_of(arguments)
        chosen_tables(request, list(published_titles()))  # raises an error that lists what there is
        from launch.reproduction.command import run_reproduction  # noqa: PLC0415  -h, typing errors answer at once

        run_reproduction(request)


def request_of(arguments: argparse.Namespace) -> ReproductionRequest:
    """Return what the command line asks for."""
    return ReproductionRequest(
        tuple(arguments.table), tuple(arguments.figure), arguments.all, arguments.output, arguments.plan,
        config_request(arguments), run_request(arguments), arguments.is_json, tuple(arguments.row),
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    what = parser.add_argument_group("what to reproduce")
    what.add_argument("--table", action="append", default=[], metavar="NAME", help="a table; may be repeated")
    what.add_argument("--figure", action="append", default=[], metavar="NAME", help="a figure; may be repeated")
    what.add_argument("--all", action="store_true", help="every table and figure")
    what.add_argument("--row", action="append", default=[], metavar="NAME", help="train only this row of them, such "
                      "as \"D' = 32\", or this grid; may be repeated")  # fmt: skip
    what.add_argument("--list", action="store_true", help="print their names and stop")
    what.add_argument("--output", type=Path, metavar="FOLDER", help="also keep each table in this folder, such as "
                      "dashboards/results, as a CSV with command, hardware, commit and date")  # fmt: skip
    what_flags(what, "report seeds (default: 4,5,6,7,8; the first three at quick, two at smoke)")
    how = parser.add_argument_group("how to run it")
    how.add_argument("--plan", action="store_true", help="print what would run and about how long it takes, and stop")
    running_flags(how)
    json_flag(how)
    where_flags(parser)
    return parser


if __name__ == "__main__":
    run(main)
