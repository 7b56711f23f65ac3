"""The README's tables, rendered from the results that are kept with the code."""

import sys
from pathlib import Path

from dashboards.paper.results import RESULTS, read_results, readme_with
from launch.shared.command import say
from pcl.storage.files import write_text


def render(*, results: Path | None, readme: Path, check: bool) -> None:
    """Write the tables, or compare: exits with 1 where the README has others. See `launch/results.py`."""
    folder = results or RESULTS
    if results and not folder.is_dir():
        raise ValueError(f"`--results` must be a folder of results, but there is no folder {folder}.")
    found = read_results(folder)
    before = readme.read_text(encoding="utf-8")
    after = readme_with(before, found)
    if not check:
        write_text(readme, after)
        say(f"{len(found)} tables and figures of {folder} are in {readme}")
    elif before == after:
        say(f"{readme} is of the {len(found)} CSVs in {folder}")
    else:
        print(f"results.py: {readme} is not of the {len(found)} CSVs in {folder}; `python launch/results.py` renders "
              "them.", file=sys.stderr)  # fmt: skip
        sys.exit(1)
