"""Axes of a search space, and the stages in which they are searched.

An axis is a dotted path with plain values, a dotted path with a range such as `log_uniform(1e-5, 1e-3)` or Ray's domain
for it, or another name with `Variants`, whose labels stand for several settings each. Ray is not imported here.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pcl.config.run_config import Plain, RunConfig
from pcl.studies.space.ranges import Range

_MOST_CELLS = 10_000  # all are checked when a space is created, which takes a few seconds
_N_PROBES = 16  # draws to check a domain by


@dataclass(frozen=True)
class Variants:
    """Values of an axis that are settings of several paths at once."""

    settings: Mapping[str, Mapping[str, Plain]]  # label -> dotted path -> value


@runtime_checkable
class Domain(Protocol):
    """The protocol of ranges and of Ray's domains."""

    @property
    def domain_str(self) -> str:
        """Bounds as text."""

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        """Draw a value."""


Axis = Sequence[Plain] | Variants | Domain


def negatives_axis(*counts: int, source: str = "training.negatives") -> Variants:
    """Return an axis of the paper's M, the number of negatives drawn for each anchor; 0 takes one from the batch.

    The `source` of a run of mu phases alone is `training.mu_phase_negatives`.
    """
    in_batch: dict[str, Plain] = {source: "in_batch"}
    return Variants({str(m): {source: "drawn", "training.n_negatives": m} if m else in_batch for m in counts})


def tied_axis(*values: int, paths: Sequence[str]) -> Variants:
    """Return an axis that sets several paths to the same number."""
    return Variants({str(value): dict.fromkeys(paths, value) for value in values})


def toy_axes(learned: str) -> dict[str, Axis]:
    """Return the paper's 12 cells of the controlled experiment; `learned` is the path by which a scale is learned."""
    return {"M": negatives_axis(0, 1, 32), learned: (True, False), "training.phases": ("mu kappa", "joint")}


def image_axes(*kappa_paths: str) -> dict[str, Axis]:
    """Return the paper's 36 cells of CIFAR; kappa_pos sets all of `kappa_paths`."""
    return {
        "encoder.dim": (8, 16),
        "M": negatives_axis(0, 1, 32),
        "kappa_pos": tied_axis(16, 32, 64, paths=kappa_paths),
        "training.phases": ("mu kappa", "joint"),
    }


@dataclass(frozen=True)
class Stage:
    """Axes that are searched together, while those of earlier stages are fixed at their best."""

    name: str
    axes: Mapping[str, Axis]  # axes by dotted path, or by another name for `Variants`

    @property
    def is_sampled(self) -> bool:
        """True if an axis is a domain, so that there is no list of cells."""
        return any(isinstance(axis, Domain) for axis in self.axes.values())

    @property
    def n_cells(self) -> int:
        """Number of cells of the grid; for a sampled stage, of its other axes."""
        return math.prod(len(_values(axis)) for axis in self.axes.values() if not isinstance(axis, Domain))

    def grid(self) -> Iterator[dict[str, Plain]]:
        """Yield the values of all axes for each cell, the last axis varying fastest; none may be a domain."""
        for values in itertools.product(*(_values(axis) for axis in self.axes.values())):
            yield dict(zip(self.axes, values, strict=True))

    def probes(self) -> Iterator[dict[str, Any]]:
        """Yield some points of a sampled stage that include every value of its other axes."""
        lengths = [len(_values(axis)) for axis in self.axes.values() if not isinstance(axis, Domain)]
        for i in range(max(_N_PROBES, *lengths, 0)):
            yield {
                name: _probe(axis, i) if isinstance(axis, Domain) else _values(axis)[i % len(_values(axis))]
                for name, axis in self.axes.items()
            }

    def paths(self) -> set[str]:
        """Return all paths that the axes set."""
        return {path for name in self.axes for path in self.paths_of(name)}

    def paths_of(self, name: str) -> set[str]:
        """Return all paths that one axis sets."""
        axis = self.axes[name]
        return {path for s in axis.settings.values() for path in s} if isinstance(axis, Variants) else {name}

    def read(self, reader: RunConfig) -> "Stage":
        """Return the stage with every value converted to its path's type.

        Raises:
            ValueError: If there is nothing to search, a path or value is not possible, or a value is repeated.
        """
        if not self.axes:
            raise ValueError(f"the stage {self.name!r} must have at least one axis.")
        axes = {name: _read(name, axis, reader) for name, axis in self.axes.items()}
        stage = Stage(self.name, axes)
        if stage.n_cells > _MOST_CELLS:
            n, most = stage.n_cells, _MOST_CELLS
            raise ValueError(f"a stage has at most {most:,} cells, but {self.name!r} has {n:,}; split it into several.")
        return stage

    def declared(self) -> list[Any]:
        """Return the stage's content as JSON."""
        return [self.name, [[name, _declared(axis)] for name, axis in self.axes.items()]]


def _values(axis: Axis) -> Sequence[Plain]:
    assert not isinstance(axis, Domain)
    return list(axis.settings) if isinstance(axis, Variants) else axis


def _probe(axis: Domain, i: int) -> Any:
    """Draw a value; the ends of a range come first, as impossible values are most often there."""
    return (axis.low, axis.high)[i] if isinstance(axis, Range) and i < 2 else axis.sample(random_state=i)


def _read(name: str, axis: Any, reader: RunConfig) -> Axis:
    if isinstance(axis, dict) and list(axis) == ["grid_search"]:  # what ray.tune.grid_search returns
        axis = axis["grid_search"]
    if isinstance(axis, Domain):
        if hasattr(axis, "func"):
            raise ValueError(f"the axis {name!r} must be data, but got ray.tune.sample_from, which is code.")
        reader.read(name, axis.sample(random_state=0))
        return axis
    if isinstance(axis, Variants):
        return _read_variants(name, axis, reader)
    if isinstance(axis, str) or not isinstance(axis, Sequence):
        raise ValueError(f"the axis {name!r} must be a tuple of values, a range or `Variants`, but got {axis!r}.")
    values = tuple(reader.read(name, value) for value in axis)
    _require_different(name, values)
    return values


def _read_variants(name: str, axis: Variants, reader: RunConfig) -> Variants:
    if name in reader.paths():
        raise ValueError(f"variants must have a name of their own, but {name!r} is a path; name the axis differently.")
    for label, settings in axis.settings.items():
        if not isinstance(label, str) or not settings:
            raise ValueError(f"the axis {name!r} must have texts as labels, each with settings, but got {label!r}.")
    settings_of = {
        label: {path: reader.read(path, value) for path, value in settings.items()}
        for label, settings in axis.settings.items()
    }
    _require_different(name, [sorted(settings.items()) for settings in settings_of.values()])
    return Variants(settings_of)


def _require_different(name: str, values: Sequence[Any]) -> None:
    if not values:
        raise ValueError(f"the axis {name!r} must have at least one value.")
    for i, value in enumerate(values):
        if value in values[:i]:
            raise ValueError(f"the axis {name!r} must have every value once, but {value!r} comes twice.")


def _declared(axis: Any) -> Any:
    if isinstance(axis, Variants):
        return {label: sorted(settings.items()) for label, settings in axis.settings.items()}
    if isinstance(axis, list | tuple):
        return [_declared(value) for value in axis]
    if isinstance(axis, str | int | float | None):
        return axis
    # A domain, or the sampler inside it: its class and attributes.
    return [type(axis).__qualname__, {name: _declared(value) for name, value in sorted(vars(axis).items())}]
