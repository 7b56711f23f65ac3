"""Write the tables of results into the README: `python launch/results.py`.

They come from the CSVs in dashboards/results, which `launch/reproduce.py --output dashboards/results` writes, each line
with command, hardware, commit and date.
"""

from pathlib import Path

from launch.shared.command import Parser, run

_ROOT = Path(__file__).parents[1]


def main() -> None:
    """Parse the command line, then write or compare."""
    parser = Parser(__doc__)
    parser.add_argument("--results", type=Path, help="folder of the CSVs (default: dashboards/results)")
    parser.add_argument("--readme", type=Path, default=_ROOT / "README.md", help="file to write (default: README.md)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the README differs")
    given = vars(parser.parse_args())
    from launch.viewing.readme_tables import render  # noqa: PLC0415  -h answers at once

    render(**given)


if __name__ == "__main__":
    run(main)
