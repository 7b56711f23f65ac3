"""The paper's tables and ours, line by line: published, ours, difference in combined standard errors, verdict.

Our numbers always come from runs in MLflow; a line whose run is missing says so. Our cells are marked where they are
not of the published size or the published images.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pcl.config.failure import Failure, FailureKind
from pcl.metrics.names import KAPPA_MAE, KAPPA_MEDIAN
from pcl.metrics.undefined import UNDEFINED, mean_of, told_with_error
from pcl.studies.paper.published import (
    AGREES,
    ELSEWHERE,
    FEW_SEEDS,
    Comparison,
    Measured,
    Plain,
    Published,
    Row,
    Table,
    compare,
    signed,
    told_failures,
)
from pcl.studies.results.statistics import estimate

MISSING = "—"
NO_ERROR = "no error printed"
NOTHING, NO_NUMBER = "nothing printed", "no number printed"  # where the paper has no value, or only words
PAPER_DATA = ("toy", "cifar10h")  # what the paper trains on
DIVERGED = "ran away"
CHANGED = "changed"  # in the mark of cells with other settings than the profile's
YARDSTICK = "yardstick"  # of a line that is a reference for others
OF_CONSTANT = " of the best constant"  # follows the metric's name in such a line
_INSTEAD = KAPPA_MEDIAN  # shown where the true kappa is infinite and has no error


@dataclass(frozen=True)
class Line:
    """A line of a table: one number of the paper and ours."""

    row: str  # the paper's name of the row
    what: str  # and of the column
    published: str  # as it is printed
    ours: str = MISSING  # mean ± standard error, with its mark
    seeds: str = ""  # number of seeds in it
    difference: str = MISSING  # ours less published in combined standard errors, with its mark
    verdict: str = ""  # with its mark
    detectable: str = ""  # smallest difference that would not agree, in the metric's own unit; only of a verdict


@dataclass(frozen=True)
class Ours:
    """The results that MLflow has for a row."""

    # Last metrics of every seed that has not failed
    by_seed: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    cause: str = ""  # why there are none
    mark: str = ""  # of everything that is not as published; see `mark_of`
    n_asked: int = 0  # number of seeds asked for; 0 if unknown
    failures: Mapping[int, Failure] = field(default_factory=dict)  # of seeds that ended early
    # Metrics that were final before the failure; see `pcl.studies.paper.published.settled`
    settled: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    constant: float = math.nan  # kappa MAE of the best constant kappa; NaN where there is no such truth

    def counted(self, n: int) -> str:
        """Return how many seeds a number has, and of how many where some are missing."""
        return f"{n} of {self.n_asked}" if n < self.n_asked else str(n)

    @property
    def n_left(self) -> int:
        return max(0, self.n_asked - len(self.by_seed) - len(self.failures))

    @property
    def told(self) -> str:
        """Return why there is no number."""
        not_run = f"; {self.n_left} of {self.n_asked} seeds not run" if self.failures and self.n_left else ""
        return self.cause or told_failures(self.failures.values()) + not_run or "not recorded"

    def is_undefined(self, metric: str) -> bool:
        """Return whether seeds have this metric, and it is undefined in all of them."""
        values = [metrics[metric] for metrics in self.by_seed.values() if metric in metrics]
        return bool(values) and all(map(math.isnan, values))

    def measured(self, metric: str) -> Measured:
        """Return the mean over the seeds where this metric is defined; of infinities, an infinity."""
        every = [*self.by_seed.values(), *self.settled.values()]
        values = [m[metric] for m in every if not math.isnan(m.get(metric, math.nan))]
        if not all(map(math.isfinite, values)):
            return Measured(mean_of(values), math.nan, len(values))
        found = estimate(values)
        return Measured(found.mean, found.error, found.n)


def mark_of(scale: str, data: str, *others: str) -> str:
    """Return the mark of cells that are not of the published size or images, or otherwise not as published.

    Example:
        >>> mark_of("smoke", "embedded"), mark_of("paper", "toy", CHANGED), mark_of("paper", "cifar10h")
        (' [smoke, embedded]', ' [changed]', '')
    """
    words = [scale] if scale != "paper" else []
    words += [data] if data not in PAPER_DATA else []
    words += others
    return f" [{', '.join(words)}]" if words else ""


def lines_of(table: Table, ours: Mapping[str, Ours]) -> list[Line]:
    """Return a table's lines: the numbers that the paper prints, and those that only ours, by row, has."""
    return [
        line
        for row in table.rows
        for metric, heading in table.columns.items()
        if metric.startswith("eval/") == (row.task == "toy")  # a table may have toy and image rows
        for line in (_line(row, metric, heading, ours[row.name]), *_yardstick(row, metric, heading, ours[row.name]))
    ]


def _yardstick(row: Row, metric: str, heading: str, ours: Ours) -> list[Line]:
    """Return the error of the best constant kappa, as a reference for kappa's error; the paper has none."""
    if metric != KAPPA_MAE or math.isnan(ours.constant):
        return []
    told = shown(Measured(ours.constant, math.nan, len(ours.by_seed)))
    return [_marked(row.name, f"{heading}{OF_CONSTANT}", "not printed", told, YARDSTICK, ours.mark)]


def _line(row: Row, metric: str, heading: str, ours: Ours) -> Line:
    published, note, measured = row.published.get(metric), row.note_on(metric), ours.measured(metric)
    printed = published.text if published else (note or "not printed")
    told, n_seeds, difference, detectable = shown(measured), measured.n, MISSING, ""
    if ours.is_undefined(metric):
        told, n_seeds, verdict = UNDEFINED, 0, "no value"
    elif not measured.n and (instead := ours.measured(_INSTEAD)).n and metric.startswith("eval/kappa"):
        told, n_seeds, verdict = f"median κ {shown(instead)}", instead.n, NO_NUMBER if note else NOTHING
        verdict = AGREES if row.expects(metric, ours.failures.values(), instead.mean) else verdict
    elif not measured.n:
        told = ours.told
        is_runaway = any(failure.kind is FailureKind.RUNAWAY_KAPPA for failure in ours.failures.values())
        verdict = DIVERGED if is_runaway else ("not run" if told == "not run" else "no value")
        verdict = AGREES if row.expects(metric, ours.failures.values()) else verdict
    else:
        result = compare(metric, published, measured) if published else None
        if result is not None and not math.isnan(result.difference):
            difference = signed(result.difference)
        verdict = _verdict(published, note, measured, result)
        if result is not None and not math.isnan(result.detectable):
            detectable = f"{result.detectable:.2g}"
    line = _marked(row.name, heading, printed, told, verdict, ours.mark, ours.counted(n_seeds), difference)
    return replace(line, detectable=detectable)


def _marked(
    row: str, what: str, published: str, ours: str, verdict: str, mark: str, seeds: str = "", difference: str = MISSING
) -> Line:
    return Line(row, what, published, f"{ours}{mark}", seeds, f"{difference}{mark}", f"{verdict}{mark}")


def shown(measured: Measured) -> str:
    """Format a mean ± standard error.

    Example:
        >>> shown(Measured(0.8212, 0.0417, 5)), shown(Measured(1.23e7, math.nan, 1)), shown(Measured(math.inf, 0, 2))
        ('0.821±0.042', '1.23e+07', '∞')
    """
    style = ".3f" if abs(measured.mean) < 1000 else ".3g"
    return told_with_error(measured.mean, measured.error, style, joint="±")


def measured_in(line: Line) -> Measured:
    """Parse our number of a line; n is 0 where it has none.

    Example:
        >>> measured_in(Line("K = 4", "κ RMSE", "4.55", "58.915±11.734 [changed]", "5"))
        Measured(mean=58.915, error=11.734, n=5)
    """
    mean, _, error = split_mark(line.ours)[0].partition("±")
    n = line.seeds.partition(" ")[0]  # empty for a yardstick
    return Measured(_number(mean), _number(error), int(n) if n and not math.isnan(_number(mean)) else 0)


def lines_taken_over(table: Table, row: Row, other: Table, lines: Sequence[Line]) -> list[Line]:
    """Return the lines of a row by those of another table's row, which has the same configuration.

    Returns an empty list if these lack a metric, or are compared with another printed number.
    """
    there = {line.what: line for line in lines}
    taken = []
    for metric, heading in table.columns.items():
        if metric.startswith("eval/") != (row.task == "toy"):
            continue
        line = there.get(other.columns.get(metric, ""))
        if line is None:
            return []
        published, note, mark = row.published.get(metric), row.note_on(metric), split_mark(line.ours)[1]
        printed = published.text if published else (note or "not printed")
        line = replace(line, row=row.name, what=heading, published=printed)
        if printed.partition(ELSEWHERE)[0] != there[other.columns[metric]].published.partition(ELSEWHERE)[0]:
            if published is not None or not measured_in(line).n:
                return []
            nothing = NO_NUMBER if note else NOTHING
            line = replace(line, difference=f"{MISSING}{mark}", verdict=f"{nothing}{mark}", detectable="")
        yardstick = there.get(f"{other.columns[metric]}{OF_CONSTANT}")
        taken += [line, *([replace(yardstick, row=row.name, what=f"{heading}{OF_CONSTANT}")] if yardstick else [])]
    return taken


def _verdict(published: Published | None, note: str, measured: Measured, result: Comparison | None) -> str:
    if published is None or result is None:
        return NO_NUMBER if note else NOTHING
    if result.verdict:
        return result.verdict
    if math.isnan(published.error) and not published.is_of_one_fold:
        return NO_ERROR
    return FEW_SEEDS.get(measured.n) or "no verdict"


def size_lines(
    content: Mapping[str, Any], configs: Mapping[tuple[str, str], Mapping[str, Plain]], mark: str
) -> list[Line]:
    """Return lines that compare `published_sizes` with our runs; `configs` are by table and row."""
    lines = []
    for row in content["rows"]:
        config = configs.get(tuple(row["of"]))
        for (path, heading), printed in zip(content["columns"].items(), row["printed"], strict=True):
            if printed == "":
                continue
            told, verdict = "not possible", "no value"
            if config is not None:
                told = _plain(config[path])
                is_same = str(config[path]) == str(printed) or _number(config[path]) == _number(printed)
                verdict = "same" if is_same else "differs"
            lines.append(_marked(row["name"], heading, str(printed), told, verdict, mark))
    return lines


def winner_lines(
    name: str, published: Mapping[str, Plain], ours: Mapping[str, Plain] | None, cause: str, mark: str
) -> list[Line]:
    """Return lines of a grid's chosen values by axis: the paper's, and those of our search or why there are none."""
    lines = []
    for axis, printed in published.items():
        chosen = None if ours is None else ours.get(axis)
        verdict = "no value" if chosen is None else "same" if chosen == printed else "differs"
        told = cause if chosen is None else _plain(chosen)
        lines.append(_marked(name, axis.rpartition(".")[2], _plain(printed), told, verdict, mark))
    return lines


def lost_seeds(ours: Mapping[str, Ours]) -> str:
    """Say which rows lack seeds that failed or have not run, and why; return an empty string where none does."""
    lost, partly = [], []
    left = [f"{name}, {o.n_left} of {o.n_asked}" for name, o in ours.items() if o.n_left]
    for name, o in ours.items():
        gone = {seed: failure for seed, failure in o.failures.items() if seed not in o.settled}
        if gone and (o.by_seed or o.settled):
            lost.append(f"{name}, {len(gone)} of {o.n_asked} ({told_failures(gone.values())})")
        if o.settled:
            partly.append(f"{name}, {len(o.settled)} of {o.n_asked}")
    sentences = [f"Seeds that failed and are in no mean: {'; '.join(lost)}."] if lost else []
    if partly:
        sentences.append(f"Seeds whose κ ran away once μ was trained, and that are in its means: {'; '.join(partly)}.")
    if left:
        sentences.append(f"Seeds that have not run: {'; '.join(left)}.")
    return " ".join(sentences)


def split_mark(cell: str) -> tuple[str, str]:
    """Split a cell into its text and its mark; see `mark_of`.

    Example:
        >>> split_mark("0.148±0.172 [smoke, embedded]"), split_mark("agrees")
        (('0.148±0.172', ' [smoke, embedded]'), ('agrees', ''))
    """
    told, bracket, rest = cell.rpartition(" [")
    return (told, bracket + rest) if bracket and rest.endswith("]") else (cell, "")


def counts(lines: Sequence[Line]) -> str:
    """Count the verdicts, in words."""
    verdicts = [verdict for line in lines if (verdict := split_mark(line.verdict)[0]) != YARDSTICK]
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))


def _plain(value: Plain) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return math.nan
