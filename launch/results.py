"""Write the tables of results into the README: `python launch/results.py`.

They come from the CSVs in dashboards/results, which `launch/reproduce.py --output dashboards/results` writes, each line
with command, hardware, commit and date.
"""

import sys
from pathlib import Path

from dashboards.paper.results import RESULTS, read_results, readme_with
from launch.shared.command import Parser, run, say
from pcl.storage.files import write_text


def main() -> None:
    """Parse the command line, then write or compare: exits with 1 where the README has other tables."""
    parser = Parser(__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="of the CSVs (default: dashboards/results)")
    parser.add_argument("--readme", type=Path, default=Path(__file__).parents[1] / "README.md",
                        help="file to write (default: README.md)")  # fmt: skip
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the README differs")
    given = parser.parse_args()
    folder, readme = given.results, given.readme
    if not folder.is_dir():
        raise ValueError(f"`--results` must be a folder of results, but there is no folder {folder}.")
    results, before = read_results(folder), readme.read_text(encoding="utf-8")
    after = readme_with(before, results)
    if not given.check:
        write_text(readme, after)
        say(f"{len(results)} tables and figures of {folder} are in {readme}")
    elif before == after:
        say(f"{readme} is of the {len(results)} CSVs in {folder}")
    else:
        told = f"{readme} is not of the {len(results)} CSVs in {folder}; `python launch/results.py` renders them."
        print(f"results.py: {told}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    run(main)
