"""Tables of an ablation: what each variant reached, and its differences from the baseline, seed by seed."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcl.metrics.names import metric_name
from pcl.metrics.undefined import mean_of, told, told_with_error
from pcl.presentation.text_tables import aligned
from pcl.studies.results.paired_differences import by_chance, paired, verdict
from pcl.studies.results.statistics import Estimate, estimate

_COLUMNS = (
    "variant", "metric", "mean", "standard_error", "seeds", "difference", "low", "high", "paired_seeds", "verdict",
    "scale", "cause",
)  # fmt: skip
NUMBERS = ("mean", "standard_error", "seeds", "difference", "low", "high", "paired_seeds")  # columns of numbers


@dataclass(frozen=True)
class Reached:
    """A variant's results."""

    label: str
    by_seed: Mapping[int, Mapping[str, float]]  # metrics of the seeds that have not failed
    cause: str = ""  # why some seeds failed, or all

    def values(self, metric: str) -> dict[str, float]:
        """Return the finite values of a metric, by seed."""
        of_seeds = {str(seed): metrics.get(metric, math.nan) for seed, metrics in self.by_seed.items()}
        return {seed: value for seed, value in of_seeds.items() if math.isfinite(value)}

    def recorded(self, metric: str) -> list[float]:
        """Return all values of a metric, including undefined ones."""
        return [metrics[metric] for metrics in self.by_seed.values() if metric in metrics]


@dataclass(frozen=True)
class Compared:
    """A variant's metric compared with the baseline's."""

    reached: Reached
    metric: str
    mean: Estimate  # of the variant
    difference: Estimate | None  # from the baseline, over the seeds that both have; None for the baseline itself

    @property
    def verdict(self) -> str:
        if self.difference is None:
            return "baseline"
        return verdict(self.metric, self.difference) if self.difference.n else ""


def compared(variants: Sequence[Reached], baseline: str, metrics: Sequence[str]) -> list[Compared]:
    """Compare variants with the baseline, metric by metric.

    Example:
        >>> plain, other = Reached("a", {4: {"x": 1.0}, 5: {"x": 3.0}}), Reached("b", {4: {"x": 2.0}, 5: {"x": 4.5}})
        >>> [found.difference.mean for found in compared([plain, other], "a", ["x"]) if found.difference]
        [1.25]
    """
    base = next(variant for variant in variants if variant.label == baseline)
    return [
        Compared(
            variant,
            metric,
            estimate(list(variant.values(metric).values())),
            None if variant is base else paired(variant.values(metric), base.values(metric)),
        )
        for metric in metrics
        for variant in variants
        if any(other.recorded(metric) for other in variants)
    ]


def as_text(found: Sequence[Compared], scale: str) -> list[str]:
    """Return a block for each metric, and how many intervals would miss zero by chance."""
    mark = "" if scale == "paper" else f" [{scale}]"
    lines = []
    for metric in dict.fromkeys(entry.metric for entry in found):
        rows: list[tuple[str, ...]] = [("", "mean ± s.e.", "seeds", "difference ± s.e.", "95% interval", "")]
        rows += [_row(entry, mark) for entry in found if entry.metric == metric]
        lines += ["", metric_name(metric), *aligned(rows)]
    told = by_chance(sum(entry.difference.has_interval for entry in found if entry.difference))
    return [*lines, "", told] if told else lines


def as_csv(found: Sequence[Compared], scale: str) -> str:
    """Return a line for each metric and variant, as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for entry in found:
        mean, difference = entry.mean, entry.difference
        paired_columns = ["", "", "", ""] if difference is None else [
            *map(_number, (difference.mean, difference.low, difference.high)), difference.n,
        ]  # fmt: skip
        row = [entry.reached.label, entry.metric, _number(mean.mean), _number(mean.error), mean.n, *paired_columns]
        writer.writerow([*row, entry.verdict, scale, entry.reached.cause])
    return file.getvalue()


def _row(entry: Compared, mark: str) -> tuple[str, ...]:
    mean, difference = entry.mean, entry.difference
    if not mean.n:
        recorded = entry.reached.recorded(entry.metric)
        why = told(mean_of(recorded)) if recorded else entry.reached.cause or "no value"
        return (entry.reached.label, f"{why}{mark}", "0", "", "", "")
    shown = (entry.reached.label, f"{_plus_minus(mean)}{mark}", str(mean.n))
    if difference is None or not difference.n:
        return (*shown, "", "", entry.verdict)
    interval = "" if math.isnan(difference.low) else f"{difference.low:+.4f} to {difference.high:+.4f}{mark}"
    return (*shown, f"{_plus_minus(difference, '+')}{mark}", interval, f"{entry.verdict}{mark}")


def _plus_minus(found: Estimate, sign: str = "") -> str:
    return told_with_error(found.mean, found.error, f"{sign}.4f", ".4f")


def _number(value: float) -> str:
    return "" if math.isnan(value) else repr(value)
