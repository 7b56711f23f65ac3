"""Effects of settings on a metric over the trials of a study: importance, history of the best, response surfaces."""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_MOST_LEVELS = 7  # an axis with more distinct numbers is always a range
_LEAST_DRAWN, _DRAWN_SHARE = 4, 0.6  # least distinct numbers, and their share of the trials, of a drawn axis
_LOG_SPAN = 30.0  # from this ratio of its ends on, a positive range has a logarithmic scale
_LEAST_LOG_SPAN = 5.0  # below, the two scales look alike
_LEAST_TRIALS = 10  # for PED-ANOVA: half of them are then better than its threshold
_LEAST_TOP = 5  # trials above the threshold that Optuna asks for, for a stable analysis
_BANDWIDTH = 0.12  # of the kernel of a surface, as a share of an axis
_MOST_CELLS = 48  # along an axis of a surface: with more levels, neighbours share a cell
_LEAST_WEIGHT = 0.1  # total of all trials at a point; below it, no trial is near


@dataclass(frozen=True)
class Axis:
    """A setting that the trials of a study vary."""

    name: str
    values: Sequence[str]  # one for each trial; empty where a trial does not have the setting

    @cached_property
    def numbers(self) -> list[float] | None:
        """The values as numbers, NaN where there is none; None unless all others are finite numbers."""
        try:
            found = [float(value) if value else math.nan for value in self.values]
        except ValueError:
            return None
        is_number = all(math.isfinite(number) for number, value in zip(found, self.values, strict=True) if value)
        return found if is_number and any(self.values) else None

    @cached_property
    def is_range(self) -> bool:
        """True if the values look drawn from a range: many distinct numbers, or as many as most trials."""
        if self.numbers is None:
            return False
        n_distinct = len({value for value in self.values if value})
        is_drawn = n_distinct >= max(_LEAST_DRAWN, _DRAWN_SHARE * sum(map(bool, self.values)))
        return n_distinct > _MOST_LEVELS or is_drawn

    @cached_property
    def is_log(self) -> bool:
        """True if the numbers are positive, and span much or lie as if drawn from a logarithmic range."""
        known = [number for number in self.numbers or () if not math.isnan(number)]
        if not known or min(known) <= 0 or max(known) < _LEAST_LOG_SPAN * min(known):
            return False
        middle, low, high = statistics.median(known), min(known), max(known)
        is_skewed = abs(middle - math.sqrt(low * high)) < abs(middle - (low + high) / 2)
        return is_wide(known) or is_skewed

    @cached_property
    def levels(self) -> list[str]:
        """The distinct values in their order, missing ones first."""
        found = list(dict.fromkeys(self.values))
        has_numbers = self.numbers is not None
        return sorted(found, key=lambda text: (text != "", float(text) if has_numbers and text else 0.0, text))

    @property
    def places(self) -> list[float]:
        """Places of the trials between 0 and 1: on the range's scale, or evenly by level."""
        if not self.is_range:
            place = {level: (i + 0.5) / len(self.levels) for i, level in enumerate(self.levels)}
            return [place[value] for value in self.values]
        numbers = [math.log(n) if self.is_log and not math.isnan(n) else n for n in self.numbers or ()]
        known = [number for number in numbers if not math.isnan(number)]
        span = max(known) - min(known) or 1.0
        return [(number - min(known)) / span for number in numbers]


class Method(Enum):
    """A measure of importance."""

    MAIN_EFFECTS = "main effects"
    PED_ANOVA = "PED-ANOVA"


class Unknown(Enum):
    """A reason why importance cannot be measured."""

    SAME_VALUE = "All trials reached the same value."
    TOO_FEW = "Importance needs more trials than there are levels, and ten if a setting is drawn from a range."


@dataclass(frozen=True)
class Importance:
    """Shares of the settings in the spread of a metric."""

    method: Method
    shares: dict[str, float]  # by axis, the largest first
    rest: float = 0.0  # of main effects: share of interactions and noise


def is_wide(values: Sequence[float]) -> bool:
    """Return whether positive values span so much that a linear scale would hide most of them.

    Example:
        >>> is_wide([1e-4, 1e-2]), is_wide([1, 2, 20]), is_wide([0, 1, 1000])
        (True, False, False)
    """
    return len(values) > 1 and min(values) > 0 and max(values) >= _LOG_SPAN * min(values)


def importance(axes: Sequence[Axis], values: Sequence[float], *, is_larger_better: bool) -> Importance | Unknown:
    """Return the importance of every axis: main effects of levels, or PED-ANOVA where an axis is a range.

    An `Unknown` says that trials are too few or all have one value. Pass the logarithms of a metric that spans decades.
    """
    if len(axes) == 0 or len(values) < 3:
        return Unknown.TOO_FEW
    if max(values) == min(values):
        return Unknown.SAME_VALUE
    if any(axis.is_range for axis in axes):
        return _ped_anova(axes, values, is_larger_better) if len(values) >= _LEAST_TRIALS else Unknown.TOO_FEW
    n_free = 1 + sum(len(axis.levels) - 1 for axis in axes)  # with as many free values as trials, any explanation fits
    return _main_effects(axes, values) if len(values) > n_free else Unknown.TOO_FEW


def _main_effects(axes: Sequence[Axis], values: Sequence[float]) -> Importance:
    """Return how much of the variance an additive model of the levels loses without each axis.

    In a whole grid this is the variance of the levels' means; where cells are missing, an axis is not credited with
    what another explains as well.
    """
    import numpy as np  # noqa: PLC0415  a tenth of a second

    y = np.asarray(values) - np.mean(values)
    blocks = [
        np.array([[float(value == level) for level in axis.levels[1:]] for value in axis.values]) for axis in axes
    ]

    def unexplained(chosen: Sequence["np.ndarray"]) -> float:
        matrix = np.hstack([np.ones((len(y), 1)), *chosen])
        solution = np.linalg.lstsq(matrix, y, rcond=None)[0]
        return float(np.sum((y - matrix @ solution) ** 2))

    total, left = float(np.sum(y**2)), unexplained(blocks)
    shares = {
        axis.name: max(0.0, unexplained([*blocks[:i], *blocks[i + 1 :]]) - left) / total for i, axis in enumerate(axes)
    }
    return Importance(Method.MAIN_EFFECTS, _sorted(shares), left / total)


def _ped_anova(axes: Sequence[Axis], values: Sequence[float], is_larger_better: bool) -> Importance:
    """Return how well each axis tells the best trials from all, by Optuna, normalized to a sum of 1."""
    import optuna  # noqa: PLC0415  half a second

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions: dict[str, optuna.distributions.BaseDistribution] = {}
    params: dict[str, Sequence[float | str]] = {}
    for axis in axes:
        numbers = [number for number in axis.numbers or () if not math.isnan(number)]
        is_range = axis.is_range and min(numbers) < max(numbers)
        distributions[axis.name] = (
            optuna.distributions.FloatDistribution(min(numbers), max(numbers), log=axis.is_log)
            if is_range
            else optuna.distributions.CategoricalDistribution(axis.levels)
        )
        params[axis.name] = axis.numbers or [] if is_range else axis.values
    study = optuna.create_study(direction="maximize" if is_larger_better else "minimize")
    for index, value in enumerate(values):
        own = {name: of_trials[index] for name, of_trials in params.items()}
        own = {name: param for name, param in own.items() if not isinstance(param, float) or not math.isnan(param)}
        study.add_trial(optuna.trial.create_trial(
            params=own, distributions={name: distributions[name] for name in own}, value=value,
        ))  # fmt: skip
    quantile = max(0.1, _LEAST_TOP / len(values))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=quantile)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator, params=list(distributions))
    return Importance(Method.PED_ANOVA, _sorted(found))


def _sorted(shares: dict[str, float]) -> dict[str, float]:
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def mean(values: Sequence[float], *, is_log: bool) -> float:
    """Return the arithmetic mean or, on a logarithmic scale, the geometric one.

    Example:
        >>> mean([1.0, 3.0], is_log=False), round(mean([1.0, 100.0], is_log=True), 6)
        (2.0, 10.0)
    """
    if not is_log:
        return statistics.fmean(values)
    return math.exp(statistics.fmean(map(math.log, values)))


def best_so_far(values: Sequence[float], *, is_larger_better: bool) -> list[float]:
    """Return the best value up to each trial; NaN until there is one.

    Example:
        >>> best_so_far([0.1, math.nan, 0.3, 0.2], is_larger_better=True)
        [0.1, 0.1, 0.3, 0.3]
    """
    better = max if is_larger_better else min

    def further(best: float, value: float) -> float:
        return best if math.isnan(value) else value if math.isnan(best) else better(best, value)

    return list(itertools.accumulate(values, further))


@dataclass(frozen=True)
class Surface:
    """Values of a metric over two axes, in cells from the low ends of both."""

    n_x: int
    n_y: int
    values: Sequence[Sequence[float]]  # by row of y, then x; NaN where no trial is near


def surface(x: Axis, y: Axis, values: Sequence[float], n_cells: int = 24, *, is_log: bool = False) -> Surface:
    """Return a metric over two axes: means of levels that were crossed, a kernel smoother along a range.

    Means are geometric on a logarithmic scale. Cells that no trial is near have no value.
    """
    import numpy as np  # noqa: PLC0415  a tenth of a second

    n_x, n_y = (n_cells if axis.is_range else min(len(axis.levels), _MOST_CELLS) for axis in (x, y))
    at_x, at_y, z = np.array(x.places), np.array(y.places), np.log(values) if is_log else np.array(values)
    is_known = ~(np.isnan(at_x) | np.isnan(at_y))
    at_x, at_y, z = at_x[is_known], at_y[is_known], z[is_known]
    weights = [
        _weights(at, n, is_range=axis.is_range) for at, n, axis in ((at_x, n_x, x), (at_y, n_y, y))
    ]  # cells by trials
    both = weights[1][:, None, :] * weights[0][None, :, :]
    total = both.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(total >= _LEAST_WEIGHT, (both * z).sum(axis=-1) / total, np.nan)
    return Surface(n_x, n_y, (np.exp(means) if is_log else means).tolist())


def _weights(at: "np.ndarray", n: int, *, is_range: bool) -> "np.ndarray":
    """Return the weight of each trial in each of `n` cells along an axis."""
    import numpy as np  # noqa: PLC0415  a tenth of a second

    middles = (np.arange(n) + 0.5) / n
    distance = middles[:, None] - at[None, :]
    is_inside = np.arange(n)[:, None] == np.floor(at * n)[None, :]
    weights: np.ndarray = np.exp(-0.5 * (distance / _BANDWIDTH) ** 2) if is_range else is_inside
    return weights.astype(float)
