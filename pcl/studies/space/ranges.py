"""Ranges that a random or Optuna search draws from; a grid cannot use them.

They do what Ray's domains do for `pcl.studies.space.axes`, are shorter to write, and import no Ray.
"""

import math
import random
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    is_log: bool = False  # whether the logarithm is uniform, rather than the number
    is_whole: bool = False  # whether it contains only whole numbers
    step: float = 0.0  # distance of neighbours; 0 for all numbers, or all whole ones

    def __post_init__(self) -> None:
        for bound in (self.low, self.high):
            is_number = isinstance(bound, int | float) and not isinstance(bound, bool) and math.isfinite(bound)
            if not is_number or (self.is_whole and bound != int(bound)):
                kind = "whole numbers" if self.is_whole else "finite numbers"
                raise ValueError(f"A range must be between {kind}, but got {bound!r}.")
        if not self.low < self.high:
            raise ValueError(f"A range's low end must be below its high end, but got {self.low!r} and {self.high!r}.")
        if self.is_log and self.low <= 0:
            raise ValueError(f"A logarithmic range must be above 0, but got {self.low!r}.")

    @property
    def domain_str(self) -> str:
        """Bounds as a plan shows them."""
        kinds = [kind for is_so, kind in ((self.is_whole, "whole"), (self.is_log, "log")) if is_so]
        step = f" by {self.step:g}" if self.step else ""
        return " ".join([f"{self.low:g} to {self.high:g}{step}", *kinds])

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None) -> float:
        """Draw a number, with the signature of Ray's domains; the state is a seed."""
        return self.draw(random.Random(random_state))

    def draw(self, generator: random.Random) -> float:
        step = self.step or (1.0 if self.is_whole else 0.0)
        if step and not self.is_log:
            n_steps = math.floor((self.high - self.low) / step + 1e-9)
            number = self.low + step * generator.randint(0, n_steps)
        elif self.is_log:  # for whole numbers, n stands for the interval from n to n + 1
            number = math.exp(generator.uniform(math.log(self.low), math.log(self.high + int(self.is_whole))))
        else:
            number = generator.uniform(self.low, self.high)
        number = min(max(number, self.low), self.high)
        return math.floor(number) if self.is_whole else number


def uniform(low: float, high: float) -> Range:
    """Return the range of all numbers from `low` to `high`."""
    return Range(low, high)


def log_uniform(low: float, high: float) -> Range:
    """Return the range of all numbers from `low` to `high`, uniform in the logarithm."""
    return Range(low, high, is_log=True)


def integers(low: int, high: int) -> Range:
    """Return the range of all whole numbers from `low` to `high`, both included."""
    return Range(low, high, is_whole=True)
