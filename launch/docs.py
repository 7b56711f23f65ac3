"""Write the generated parts of README.md and docs/: `python launch/docs.py`.

Results come from the CSVs in dashboards/results, which `launch/reproduce.py --output dashboards/results` writes. The
differences between text, released code and theorem come from `SETTINGS`, the command reference from the parsers.
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from dashboards.paper.results import RESULTS, read_results
from launch.shared.command import Parser, run, say
from pcl.storage.files import write_text
from pcl.studies.space.declarations import ABLATIONS, SPACES

_ROOT = Path(__file__).parents[1]
# In the order of the command reference.
_COMMANDS = (
    "grid", "ablate", "train", "look", "apply", "champion", "board", "reproduce", "submit", "verify", "data",
    "pretrain", "bench", "docs",
)  # fmt: skip


def main() -> None:
    """Parse the command line, then write or compare; `--check` exits with 1 if a page is out of date."""
    given = _parser().parse_args()
    if not given.results.is_dir():
        raise ValueError(f"`--results` must be a folder of results, but there is no folder {given.results}.")
    from launch.manual.marked_parts import rendered  # noqa: PLC0415  -h answers at once

    texts = rendered(given.root, _parts(given.results))
    stale = [path for path, text in texts.items() if path.read_text(encoding="utf-8") != text]
    if not given.check:
        for path in stale:
            write_text(path, texts[path])
        say(f"{len(texts)} pages have generated parts; {len(stale)} of them changed")
    elif stale:
        told = f"{stale[0]} is out of date; `python launch/docs.py` writes it."
        print(f"docs.py: {told}", file=sys.stderr)
        sys.exit(1)
    else:
        say(f"{len(texts)} pages are up to date")


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every command by the name of its file."""
    return {f"{name}.py": import_module(f"launch.{name}")._parser() for name in _COMMANDS}


def _parts(folder: Path) -> dict[str, str]:
    """Return the generated parts by name."""
    from launch.manual import tables  # noqa: PLC0415  -h answers at once
    from launch.manual.command_reference import command_reference  # noqa: PLC0415  -h answers at once

    results = read_results(folder)
    return {
        "summary": tables.summary_table(results),
        "status": tables.status_table(results),
        "results": tables.results_tables(results),
        "changes": tables.changes_table(results),
        "settings": tables.settings_table(),
        "spaces": tables.titles_table("space", SPACES.titles()),
        "ablations": tables.titles_table("ablation", ABLATIONS.titles()),
        "commands": command_reference(parsers()),
    }


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder of the CSVs (default: dashboards/results)"
    )
    parser.add_argument("--root", type=Path, default=_ROOT, metavar="FOLDER",
                        help="folder of README.md and docs/ (default: this checkout)")  # fmt: skip
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page is out of date")
    return parser


if __name__ == "__main__":
    run(main)
