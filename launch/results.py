"""Render the results that are kept with the code in the README: `python launch/results.py`.

`launch/reproduce.py --output dashboards/results` writes them as CSVs, each line with command, hardware, commit and
date; here they become the README's tables.
"""

import argparse
from pathlib import Path

from launch.shared.command import Parser, run

_ROOT = Path(__file__).parents[1]


def main() -> None:
    """Parse the command line, then write or compare."""
    given = vars(_parser().parse_args())
    from launch.viewing.readme_tables import ResultsRequest, render  # noqa: PLC0415  -h answers at once

    render(ResultsRequest(**given))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="results.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, metavar="DIR", help="of the CSVs (default: dashboards/results)")
    parser.add_argument("--readme", type=Path, default=_ROOT / "README.md", metavar="FILE", help="default: README.md")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where the README differs")
    return parser


if __name__ == "__main__":
    run(main)
