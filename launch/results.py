"""Render the results that are kept with the code in the README: `python launch/results.py`.

`launch/reproduce.py --output dashboards/results` writes them as CSVs, each line with command, hardware, commit and
date; here they become the README's tables.
"""

import argparse
import sys
from pathlib import Path

from launch.shared.command import Parser, run, say

_ROOT = Path(__file__).parents[1]


def main() -> None:
    """Parse the command line, then write or compare."""
    parser = Parser(prog="results.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, metavar="DIR", help="of the CSVs (default: dashboards/results)")
    parser.add_argument("--readme", type=Path, default=_ROOT / "README.md", metavar="FILE", help="default: README.md")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where the README differs")
    arguments = parser.parse_args()
    from dashboards.paper.results import RESULTS, read_results, readme_with  # noqa: PLC0415  -h answers at once
    from pcl.storage.files import write_text  # noqa: PLC0415

    folder = arguments.results or RESULTS
    if arguments.results and not folder.is_dir():
        raise ValueError(f"`--results` must be a folder of results, but there is no folder {folder}.")
    results = read_results(folder)
    before = arguments.readme.read_text(encoding="utf-8")
    after = readme_with(before, results)
    if arguments.check:
        if before != after:
            print(f"results.py: {arguments.readme} is not of the {len(results)} CSVs in {folder}; "
                  f"`python launch/results.py` renders them.", file=sys.stderr)  # fmt: skip
            sys.exit(1)
        say(f"{arguments.readme} is of the {len(results)} CSVs in {folder}")
        return
    write_text(arguments.readme, after)
    say(f"{len(results)} tables and figures of {folder} are in {arguments.readme}")


if __name__ == "__main__":
    run(main)
