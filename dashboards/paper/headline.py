"""Count what the kept results say of the paper as a whole: of its numbers with an error, each once."""

from collections import Counter
from collections.abc import Sequence

from dashboards.paper.results import Result
from pcl.studies.paper.comparison import split_mark
from pcl.studies.paper.published import AGREES, numbers_with_error

_NOT_RUN, _DIFFERS = "not run", "differs from run to run"
_WORDS = {AGREES: "agree", "better": "better than printed", "worse": "worse than printed"}


def verdicts(results: Sequence[Result]) -> Counter[str]:
    """Count the verdicts on the numbers that the paper prints with an error, as released, by today's numerics."""
    found: dict[tuple[str, str, str], str] = {}
    for result in results:
        if result.is_as_released:
            for line, origin in zip(result.lines, result.origins, strict=True):
                verdict, mark = split_mark(line.verdict)
                if origin.numerics and not origin.is_older and not mark:
                    found.setdefault((result.table, line.row, line.what), verdict)
    counted: Counter[str] = Counter()
    for places in numbers_with_error():
        told = {found[place] for place in places if place in found}
        counted[told.pop() if len(told) == 1 else _DIFFERS if told else _NOT_RUN] += 1
    return counted


def headline(results: Sequence[Result]) -> str:
    """Return the counts in words.

    Example:
        >>> headline([])
        '48 numbers with an error: 48 not run'
    """
    counted = verdicts(results)
    told = ", ".join(f"{count} {_WORDS.get(verdict, verdict)}" for verdict, count in counted.most_common())
    return f"{counted.total()} numbers with an error: {told}"
