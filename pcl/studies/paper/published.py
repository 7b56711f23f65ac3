"""The paper's tables and figures as data, and which runs of MLflow belong to them.

`published_tables` has all that the paper prints, by the names of its tables and figures. Each row has a configuration:
`Row.config` returns it for training, and `Row.matches` finds runs by their whole configuration, whichever study trained
them. Published numbers never become ours.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pcl.config.failure import Failure, FailureKind
from pcl.config.fidelity import TO_THE_END
from pcl.metrics.names import larger_is_better

Plain = str | int | float | bool

_FILE = Path(__file__).with_name("published.json")
# The origin of images and weights is stated with a result; the number format does not make another cell.
_NOT_COMPARED = frozenset({"task.data", "encoder.weights", "encoder.precision", "seeds"})
AGREES = "agrees"
_AGREES_WITHIN = 2.0  # combined standard errors
FEW_SEEDS = {1: "one seed", 2: "two seeds"}  # too few to estimate how much they vary
_WITHOUT_BOUND = "without bound"
_UNBOUNDED = 1e6  # a median kappa beyond this, where `paper` and `exact` end a run, counts as grown without bound
_OF_RANKS = "rank corr."
ELSEWHERE = " (tab:"  # before the name of another table that has the number
_ONE_FOLD = " (one fold)"  # by the release's scripts; the paper does not say


@dataclass(frozen=True)
class Published:
    """A printed number."""

    # As printed; in parentheses, another table that has it, or that it is of one fold
    text: str
    mean: float  # over five seeds or folds, or of one
    error: float  # its standard error; NaN where none is printed
    rounding: float  # half of the unit of the mean's last printed digit
    error_rounding: float  # the same for the error; 0 where none is printed

    @property
    def is_of_another_table(self) -> bool:
        return ELSEWHERE in self.text

    @property
    def is_of_one_fold(self) -> bool:
        return _ONE_FOLD in self.text


@dataclass(frozen=True, eq=False)
class Row:
    """A row of a table, or a point of a figure."""

    name: str  # as the paper has it
    loss: str
    task: str  # toy or images
    settings: Mapping[str, Plain]  # by dotted path; the rest is the profile's and the scale's
    # Further settings at the scale `paper` only: sizes
    settings_at_paper: Mapping[str, Plain] = field(default_factory=dict)
    # Settings of the release's scripts where the text differs, under the profile `reference` at that scale
    in_scripts: Mapping[str, Plain] = field(default_factory=dict)
    # By metric; a table need not print every column for every row
    published: Mapping[str, Published] = field(default_factory=dict)
    note: str = ""  # what is printed instead of a number
    is_from_scratch: bool = False  # for images: whether it trains without pretrained weights

    def config(self, profile: str, scale: str) -> dict[str, Plain]:
        """Return the whole configuration, by dotted path.

        Raises:
            ValueError: If the profile does not have this row, as `exact` has none without negatives.
        """
        from pcl.config.run_config import RunConfig  # noqa: PLC0415  torch takes seconds

        sizes = {**self.settings_at_paper, **(self.in_scripts if profile == "reference" else {})}
        sizes = sizes if scale == "paper" else {}
        values = {**TO_THE_END, **self.settings, **sizes}
        return RunConfig.of(values, loss=self.loss, profile=profile, scale=scale, task=self.task).flat()

    def constant_kappa_mae(self, profile: str, scale: str, seeds: Sequence[int]) -> float | None:
        """Return the kappa MAE of the best constant kappa; None without a truth, or if the truth is trained first."""
        from pcl.config.run_config import RunConfig  # noqa: PLC0415  torch takes seconds

        config = self.config(profile, scale)
        is_trained = config.get("task.backbone") == "shared"  # takes 9 s a row, while a page waits
        return None if is_trained or not seeds else RunConfig.from_flat(config).task.constant_kappa_mae(seeds)

    def expects(self, metric: str, failures: Iterable[Failure], median: float = math.nan) -> bool:
        """Return whether seeds did what is printed instead of a number: kappa grows without bound.

        Either all seeds ended for that reason, or none did and `median`, the mean of their median kappas, is that
        large.
        """
        kinds = {failure.kind for failure in failures}
        is_kappa = _WITHOUT_BOUND in self.note and metric.startswith("eval/kappa_")
        return is_kappa and (kinds == {FailureKind.RUNAWAY_KAPPA} or (not kinds and median > _UNBOUNDED))

    def note_on(self, metric: str) -> str:
        """Return what is printed instead of this metric's number; remarks on rank correlations are for these only."""
        is_of_ranks = _OF_RANKS in self.note
        return self.note if not is_of_ranks or metric.endswith("_rank_corr") else ""

    def matches(self, params: Mapping[str, str]) -> bool:
        """Return whether a run with these parameters is one of this row, at its own profile and scale."""
        if (params.get("loss_name"), params.get("task_name")) != (self.loss, self.task):
            return False
        expected = _expected(self, params.get("profile", ""), params.get("scale", ""))
        if expected is None or any(params.get(path) != expected.get(path) for path in self.settings):
            return False  # most runs end here: a page asks this of every run for every row
        found = {path: value for path, value in params.items() if path not in _NOT_COMPARED}
        return expected == found


@dataclass(frozen=True)
class Table:
    """A table or a figure of the paper."""

    name: str  # its label there, such as tab:bench_results
    title: str
    columns: Mapping[str, str]  # the paper's name of each metric
    rows: Sequence[Row]  # in the paper's order
    axis: str = ""  # of a figure with a curve: the setting along it
    picture: str = ""  # of a figure without a curve: which picture of a trained encoder it is


@dataclass(frozen=True)
class Grid:
    """A table of what was tuned."""

    name: str  # its label in the paper
    title: str
    spaces: Mapping[str, str]  # the paper's name of each search space


@dataclass(frozen=True)
class Measured:
    """Our number."""

    mean: float  # over seeds
    error: float  # its standard error; NaN for a single seed
    n: int


@dataclass(frozen=True)
class Comparison:
    """A comparison of our number with the published one."""

    difference: float  # ours less published, in combined standard errors; NaN where either has none
    verdict: str  # agrees, better, worse, or nothing where it cannot be said
    detectable: float = math.nan  # smallest difference, in the metric's own unit, that would not agree


@lru_cache
def published_tables() -> tuple[Table, ...]:
    """Return all tables of results."""
    content = json.loads(_FILE.read_text())
    return tuple(Table(**{**table, "rows": tuple(_row(row) for row in table["rows"])}) for table in content["tables"])


@lru_cache
def numbers_with_error() -> tuple[tuple[tuple[str, str, str], ...], ...]:
    """Return the distinct numbers that the paper prints with an error, in its order.

    Several tables may have the same number: each is given by all its places, as table, row and the paper's name of
    the metric.
    """
    places: dict[tuple[object, ...], list[tuple[str, str, str]]] = {}
    for table in published_tables():
        for row in table.rows:
            of_row = [sorted(values.items()) for values in (row.settings, row.settings_at_paper)]
            for metric, number in row.published.items():
                if not (math.isnan(number.error) or number.is_of_another_table):
                    same = (row.loss, row.task, str(of_row), row.is_from_scratch, metric)
                    places.setdefault(same, []).append((table.name, row.name, table.columns[metric]))
    return tuple(map(tuple, places.values()))


@lru_cache
def published_grids() -> tuple[Grid, ...]:
    """Return the tables of grids, whose winners the search spaces have."""
    return tuple(Grid(**grid) for grid in json.loads(_FILE.read_text())["grids"])


@lru_cache
def published_sizes() -> Mapping[str, Any]:
    """Return the table of sizes: name, title, columns by dotted path, and rows with their table and row."""
    sizes: Mapping[str, Any] = json.loads(_FILE.read_text())["sizes"]
    return sizes


def published_titles() -> dict[str, str]:
    """Return the titles of all tables and figures by name, in the paper's order: results, then settings."""
    found = {table.name: table.title for table in published_tables()}
    sizes = published_sizes()
    return {**found, sizes["name"]: sizes["title"], **{grid.name: grid.title for grid in published_grids()}}


@lru_cache
def report_seeds() -> tuple[int, ...]:
    """Return the seeds that results are reported on; tuning has others."""
    return tuple(json.loads(_FILE.read_text())["report_seeds"])


def settled(metrics: Mapping[str, float], failure: Failure, config: Mapping[str, Plain]) -> dict[str, float]:
    """Return a failed seed's metrics that are final: those of mu, where kappa ran away in a phase of its own."""
    is_own_phase = config.get("training.phases") == "mu kappa" and config.get("encoder.backbone") == "independent"
    is_mu_done = failure.kind is FailureKind.RUNAWAY_KAPPA and is_own_phase
    return {name: value for name, value in metrics.items() if is_mu_done and name.startswith("eval/mu_")}


def compare(metric: str, published: Published, ours: Measured) -> Comparison:
    """Compare ours with the printed number, whose rounding counts too: ±0.00 is an error of up to 0.005.

    A number of one fold, for which no error is printed, is assumed to vary as one of our folds does.
    """
    error = ours.error * math.sqrt(ours.n) if published.is_of_one_fold else published.error
    if math.isnan(error) or math.isnan(ours.error):
        return Comparison(math.nan, "")
    if metric.endswith("_mae") and error >= published.mean:
        return Comparison(math.nan, "")  # 1e14±1e14: any error would agree
    rounded = math.hypot(published.rounding, published.error_rounding) / math.sqrt(3)  # each uniform in its interval
    combined = math.hypot(error, ours.error, rounded)
    difference = (ours.mean - published.mean) / combined
    if ours.n <= max(FEW_SEEDS):
        return Comparison(difference, "")
    detectable = _AGREES_WITHIN * combined
    if abs(difference) <= _AGREES_WITHIN:
        return Comparison(difference, AGREES, detectable)
    verdict = "better" if (difference > 0) == (larger_is_better(metric) is True) else "worse"
    return Comparison(difference, verdict, detectable)


def told_failures(failures: Iterable[Failure]) -> str:
    """Return why seeds failed: the first failure of each kind, and every error, whose kind says little.

    Example:
        >>> told_failures(Failure(FailureKind.RUNAWAY_KAPPA, f"its median {kappa:g}") for kappa in (1e7, 2e7))
        'runaway kappa: its median 1e+07'
    """
    kinds: dict[object, Failure] = {}
    for failure in failures:
        kinds.setdefault(failure if failure.kind is FailureKind.ERROR else failure.kind, failure)
    return "; ".join(map(str, kinds.values()))


def signed(difference: float) -> str:
    """Format a difference in standard errors with its sign.

    Example:
        >>> signed(2.345), signed(-0.01)
        ('+2.3', '+0.0')
    """
    return f"{round(difference, 1) + 0.0:+.1f}"  # never -0.0


def _row(content: Mapping[str, Any]) -> Row:
    return Row(**{**content, "published": {metric: read(text) for metric, text in content["published"].items()}})


def read(printed: str) -> Published:
    """Parse a printed number.

    Example:
        >>> read("6.15±0.61")
        Published(text='6.15±0.61', mean=6.15, error=0.61, rounding=0.005, error_rounding=0.005)
        >>> read("1e14 (tab:bench_results)").rounding
        50000000000000.0
    """
    mean, _, error = printed.partition(" (")[0].partition("±")
    error_rounding = _rounding(error) if error else 0.0
    return Published(printed, float(mean), float(error or "nan"), _rounding(mean), error_rounding)


def _rounding(printed: str) -> float:
    """Return half of the unit of the last printed digit."""
    mantissa, _, exponent = printed.partition("e")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


@lru_cache(maxsize=1024)
def _expected(row: Row, profile: str, scale: str) -> dict[str, str] | None:
    try:
        config = row.config(profile, scale)
    except ValueError:
        return None
    return {path: str(value) for path, value in config.items() if path not in _NOT_COMPARED}
