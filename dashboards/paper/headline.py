"""Counts of the kept results' verdicts on the paper as a whole: on its numbers with an error, each once.

Results with changed settings, such as those of the release's last version, are counted apart.
"""

from collections import Counter
from collections.abc import Sequence

from dashboards.paper.results import Result
from pcl.studies.paper.comparison import CHANGED, Line, mark_of, split_mark
from pcl.studies.paper.published import AGREES, numbers_with_error

_NOT_RUN, _DIFFERS = "not run", "differs from run to run"
_WORDS = {AGREES: "agree", "better": "better than printed", "worse": "worse than printed"}


def changes(results: Sequence[Result]) -> list[str]:
    """Return which settings of the released code were changed, together, in results of the published size."""
    return sorted({r.asked.changed for r in results if r.is_of_released_profile and r.asked.changed})


def lines_with_error(results: Sequence[Result], changed: str = "") -> list[list[Line]]:
    """Return the lines of each number that the paper prints with an error, with these changes and today's numerics."""
    found: dict[tuple[str, str, str], Line] = {}
    for result in results:
        if result.is_of_released_profile and result.asked.changed == changed:
            for line, origin in zip(result.lines, result.origins, strict=True):
                is_marked = split_mark(line.verdict)[1] not in ("", mark_of("paper", "toy", CHANGED) if changed else "")
                if origin.numerics and not origin.is_older and not is_marked:
                    found.setdefault((result.table, line.row, line.what), line)
    return [[found[place] for place in places if place in found] for places in numbers_with_error()]


def verdicts(results: Sequence[Result], changed: str = "") -> Counter[str]:
    """Count the verdicts on these numbers."""
    counted: Counter[str] = Counter()
    for lines in lines_with_error(results, changed):
        told = {split_mark(line.verdict)[0] for line in lines}
        counted[told.pop() if len(told) == 1 else _DIFFERS if told else _NOT_RUN] += 1
    return counted


def headline(results: Sequence[Result], changed: str = "") -> str:
    """Return the counts in words.

    Example:
        >>> headline([])
        '48 numbers with an error: 48 not run'
    """
    counted = verdicts(results, changed)
    told = ", ".join(f"{count} {_WORDS.get(verdict, verdict)}" for verdict, count in counted.most_common())
    return f"{counted.total()} numbers with an error: {told}"
