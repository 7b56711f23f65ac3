"""Search methods: the whole grid, a random part of it, or proposals of a sampler.

Points are drawn and proposed as values by axis; `pcl.studies.space.search_space` turns them into configurations.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pcl.config.run_config import Plain
from pcl.config.suggestion import require_choice
from pcl.studies.space.axes import Axis, Domain, Stage, Variants
from pcl.studies.space.ranges import Range

GRID, RANDOM, OPTUNA = "grid", "random", "optuna"
ASHA = "asha"
TPE, GP = "tpe", "gp"
_LEAST, _MOST = 10, 100  # bounds of a stage's default number of trials
_VALUES_OF_A_RANGE = 10  # number of values that a range counts as there


@dataclass(frozen=True)
class Method:
    """The search method of a study."""

    kind: str = GRID  # grid, random or optuna
    n_trials: tuple[int, ...] = ()  # number of trials of each stage; empty for a grid, which has its cells
    seed: int = 0  # seed of the draws and the sampler
    sampler: str = ""  # Optuna's sampler, tpe or gp; empty for other kinds
    warm_start: str = ""  # study whose finished trials the sampler starts with
    scheduler: str = ""  # early stopping of trials: asha, or empty

    def __post_init__(self) -> None:
        require_choice("method", self.kind, [GRID, RANDOM, OPTUNA])
        if self.scheduler not in ("", ASHA):
            raise ValueError(f"`scheduler` must be {ASHA!r} or empty, but got {self.scheduler!r}.")
        if self.seed < 0:
            raise ValueError(f"`search_seed` must be at least 0, but got {self.seed}.")

    @property
    def label(self) -> str:
        text = "grid"
        if self.kind == OPTUNA:
            warm = f", with the trials of {self.warm_start}" if self.warm_start else ""
            text = f"Optuna ({self.sampler.upper()}), seed {self.seed}{warm}"
        elif self.kind == RANDOM:
            text = f"random, seed {self.seed}"
        return f"{text}, {self.scheduler.upper()} stops trials early" if self.scheduler else text


def n_trials_of(stage: Stage, asked: int | None) -> int:
    """Return the number of trials of a stage: those asked for, or a tenth of its grid; at most its number of cells."""
    n_ranges = sum(isinstance(axis, Domain) for axis in stage.axes.values())
    n_cells = stage.n_cells * _VALUES_OF_A_RANGE**n_ranges
    chosen = asked or min(max(_LEAST, math.ceil(n_cells / 10)), _MOST)
    return chosen if n_ranges else min(chosen, stage.n_cells)


def searched(name: str, axis: Axis) -> Range | tuple[Plain, ...]:
    """Return what a search chooses from: a range or values; for variants, their labels.

    Raises:
        ValueError: If it is a Ray domain that is neither.
    """
    if isinstance(axis, Range):
        return axis
    if isinstance(axis, Variants):
        return tuple(axis.settings)
    if not isinstance(axis, Domain):
        return tuple(axis)
    return _of_ray(name, axis)


def draws(stage: Stage, seed: int) -> Iterator[dict[str, Plain]]:
    """Yield points of a stage without end, each axis drawn independently; the same for the same seed."""
    axes = {name: searched(name, axis) for name, axis in stage.axes.items()}
    generator = random.Random(f"{seed} {stage.name}")
    while True:
        yield {
            name: axis.draw(generator) if isinstance(axis, Range) else generator.choice(axis)
            for name, axis in axes.items()
        }


def random_cells(stage: Stage, n: int, seed: int) -> list[dict[str, Plain]]:
    """Return random cells of a stage's grid without repetition; the same for the same seed."""
    chosen = random.Random(f"{seed} {stage.name}").sample(range(stage.n_cells), min(n, stage.n_cells))
    cells = list(stage.grid())
    return [cells[index] for index in chosen]


def _of_ray(name: str, axis: Any) -> Range | tuple[Plain, ...]:
    """Convert one of Ray's domains, recognised by its name, as Ray is not imported."""
    kind, step = type(axis).__name__, 0.0
    sampler: Any = getattr(axis, "sampler", None)
    if kind == "Categorical":
        return tuple(axis.categories)
    if type(sampler).__name__ == "Quantized":
        sampler, step = sampler.sampler, float(sampler.q)
    is_whole, law = kind == "Integer", type(sampler).__name__
    if kind not in ("Float", "Integer") or law not in ("_Uniform", "_LogUniform") or (step and law != "_Uniform"):
        raise ValueError(
            f"the axis {name!r} must be uniform, log-uniform, whole numbers or a choice to be searched, but got "
            f"{kind}{axis.domain_str} with {law.strip('_')}."
        )
    high = axis.upper - 1 if is_whole and step in (0.0, 1.0) else axis.upper  # Ray excludes the upper end
    return Range(axis.lower, high, law == "_LogUniform", is_whole, step)
