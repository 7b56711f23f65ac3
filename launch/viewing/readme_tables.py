"""The README's tables, rendered from the results that are kept with the code."""

import sys
from dataclasses import dataclass
from pathlib import Path

from dashboards.paper.results import RESULTS, read_results, readme_with
from launch.shared.command import say
from pcl.storage.files import write_text


@dataclass(frozen=True)
class ResultsRequest:
    """A request to `launch/results.py`.

    Attributes:
        results: Folder of the CSVs; None for the one that is kept with the code.
        readme: The README.
        check: Compare instead of writing.
    """

    results: Path | None
    readme: Path
    check: bool


def render(request: ResultsRequest) -> None:
    """Write the tables, or compare: exits with 1 where the README has others."""
    folder = request.results or RESULTS
    if request.results and not folder.is_dir():
        raise ValueError(f"`--results` must be a folder of results, but there is no folder {folder}.")
    results = read_results(folder)
    before = request.readme.read_text(encoding="utf-8")
    after = readme_with(before, results)
    if request.check:
        if before != after:
            print(f"results.py: {request.readme} is not of the {len(results)} CSVs in {folder}; "
                  f"`python launch/results.py` renders them.", file=sys.stderr)  # fmt: skip
            sys.exit(1)
        say(f"{request.readme} is of the {len(results)} CSVs in {folder}")
        return
    write_text(request.readme, after)
    say(f"{len(results)} tables and figures of {folder} are in {request.readme}")
