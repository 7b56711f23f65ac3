"""Search spaces as data, checked against RunConfig before any work.

A space is one file that defines `SPACE`: see search_spaces/ for the paper's own, and `pcl.studies.space.axes` for axes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

from pcl.config.experiments import Experiment, experiment_of
from pcl.config.run_config import Plain, RunConfig
from pcl.config.user_files import identity_of, named
from pcl.metrics.names import KAPPA_RANK_CORR
from pcl.studies.space.axes import Axis, Domain, Stage, Variants, negatives_axis, tied_axis
from pcl.studies.space.declarations import SPACES, check_declared, digest
from pcl.studies.space.ranges import integers, log_uniform, uniform

__all__ = [
    "Axis", "Cell", "Domain", "Mode", "Objective", "SearchSpace", "Stage", "Variants",
    "integers", "load_space", "log_uniform", "negatives_axis", "space_names", "tied_axis", "uniform",
]  # fmt: skip

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_PAPERS_IMAGES = "cifar10h"  # `pcl.data.arrays.CIFAR10H`; reading a space loads no images


class Mode(Enum):
    """The better direction of a metric."""

    MAX = "max"
    MIN = "min"


@dataclass(frozen=True)
class Objective:
    """The metric that a search optimises."""

    metric: str = KAPPA_RANK_CORR  # one of the experiment's
    mode: Mode = Mode.MAX

    @classmethod
    def of(cls, content: Mapping[str, str]) -> "Objective":
        return cls(content["metric"], Mode(content["mode"]))

    def as_json(self) -> dict[str, str]:
        return {"metric": self.metric, "mode": self.mode.value}


@dataclass(frozen=True)
class Cell:
    """A point of a space."""

    config: RunConfig
    varied: dict[str, Plain]  # value of every axis of this stage and the earlier ones; for variants, their label


@dataclass(frozen=True)
class SearchSpace:
    """A search in one or several stages.

    Attributes:
        name: Name of the study.
        loss: One of `LOSSES`, or FILE.py:CLASS of a user's own.
        stages: One after the other; each goes on from the winner of those before.
        base: Settings by dotted path, applied after profile and scale.
        objective: The metric that decides.
        tuning_seeds: Seeds of every cell.
        report_seeds: Seeds of the winner's final runs.
        published: The paper's winner by axis, for comparison; empty where there is none.
        task: One of `EXPERIMENTS`, or FILE.py:NAME of a user's own.
        encoder: One of `ENCODERS`, or FILE.py:CLASS of a user's own; the experiment's if it is empty.

    Raises:
        ValueError: If a path, a value, a seed or a combination of them is not possible in a run.

    Example:
        >>> grid = Stage("grid", {"M": negatives_axis(0, 32), "loss.learn_kappa_pos": (True, False)})
        >>> [cell.varied["M"] for cell in SearchSpace("mine", "elk", (grid,)).cells(0)]
        ['0', '0', '32', '32']
    """

    name: str
    loss: str
    stages: tuple[Stage, ...]
    base: Mapping[str, Plain] = field(default_factory=dict)
    objective: Objective = field(default_factory=Objective)
    tuning_seeds: tuple[int, ...] = (1, 2, 3)
    report_seeds: tuple[int, ...] = (4, 5, 6, 7, 8)
    published: Mapping[str, Plain] = field(default_factory=dict)
    task: str = "toy"
    encoder: str = ""

    def __post_init__(self) -> None:
        check_declared("A search space", self.name)
        try:
            for part in ("loss", "task", "encoder"):
                object.__setattr__(self, part, named(getattr(self, part)))
            (reader,) = self.readers
            self._check_seeds()
            if self.objective.metric not in (known := self.experiment.metrics):
                got = self.objective.metric
                raise ValueError(f"`objective.metric` must be one of {', '.join(known)}, but got {got!r}.")
            # From here on, every value has its path's type.
            object.__setattr__(self, "base", {path: reader.read(path, value) for path, value in self.base.items()})
            object.__setattr__(self, "stages", tuple(stage.read(reader) for stage in self.stages))
            self._check_owners()
            winner = {name: self._settings(name, v, reader).get(name, v) for name, v in self.published.items()}
            object.__setattr__(self, "published", winner)
        except ValueError as error:
            raise self._error(str(error)) from None
        self._check_cells()

    @property
    def experiment(self) -> Experiment:
        return experiment_of(self.task)

    @property
    def readers(self) -> list[RunConfig]:
        """Configurations that give the type of each setting."""
        return [RunConfig.of(loss=self.loss, task=self.task, encoder=self.encoder)]

    @property
    def n_trials(self) -> tuple[int, ...]:
        """Number of cells of each stage; for a sampled stage, of its other axes."""
        return tuple(stage.n_cells for stage in self.stages)

    @property
    def is_sampled(self) -> bool:
        return any(stage.is_sampled for stage in self.stages)

    def cells(
        self, stage_index: int, winner: Mapping[str, Plain] = _NOTHING, *,
        profile: str = "paper", scale: str = "paper", overrides: Mapping[str, Any] = _NOTHING,
    ) -> list[Cell]:  # fmt: skip
        """Return all cells of a stage, the last axis varying fastest.

        Args:
            stage_index: Index of the stage.
            winner: `varied` of the best cell of the stage before; empty for the first.
            profile: Fidelity profile.
            scale: Scale.
            overrides: Settings by dotted path, over those of `base`; no axis may vary them.

        Raises:
            ValueError: If the profile, the scale, the winner or an override is not possible for a cell.
        """
        stage = self.stages[stage_index]
        if stage.is_sampled:
            raise self._error(f"the stage {stage.name!r} is sampled and has no list of cells; take `cell_from`.")
        how: dict[str, Any] = {"profile": profile, "scale": scale, "overrides": overrides}
        return [self.cell_from(stage_index, values, winner, **how) for values in stage.grid()]

    def cell_from(
        self, stage_index: int, values: Mapping[str, Any], winner: Mapping[str, Plain] = _NOTHING, *,
        profile: str = "paper", scale: str = "paper", overrides: Mapping[str, Any] = _NOTHING,
    ) -> Cell:  # fmt: skip
        """Return the cell at these values of a stage's axes, as a searcher chooses them; arguments as of `cells`."""
        reader = RunConfig.of(loss=self.loss, profile=profile, scale=scale, task=self.task, encoder=self.encoder)
        stage, chosen = self.stages[stage_index], {**winner, **values}
        earlier = [axis for before in self.stages[:stage_index] for axis in before.axes]
        settings: dict[str, Plain] = {}
        try:
            if set(winner) != set(earlier):
                raise ValueError(f"the winner before {stage.name!r} has the axes {earlier}, but got {list(winner)}.")
            if set(values) != set(stage.axes):
                raise ValueError(f"the stage {stage.name!r} has the axes {list(stage.axes)}, but got {list(values)}.")
            for axis, value in chosen.items():
                settings |= self._settings(axis, value, reader)
            self._check_overrides(overrides, reader)
        except ValueError as error:
            raise self._error(str(error)) from None
        try:
            config = reader.with_values({**self.base, **overrides, **settings})
        except ValueError as error:
            where = ", ".join(f"{axis}={value}" for axis, value in chosen.items())
            raise self._error(f"the cell {where} is not possible under the profile {profile!r}: {error}") from None
        return Cell(config, {axis: settings.get(axis, value) for axis, value in chosen.items()})

    def fingerprint(self) -> str:
        """Return sixteen hexadecimal digits of the declaration's hash, without `published`, which decides nothing."""
        return digest([
            self.name, identity_of(self.loss), identity_of(self.task), sorted(self.base.items()),
            [stage.declared() for stage in self.stages],
            self.objective.metric, self.objective.mode.value, list(self.tuning_seeds), list(self.report_seeds),
            *([identity_of(self.encoder)] if self.encoder else []),
        ])  # fmt: skip

    def published_for(self, data: str) -> Mapping[str, Plain]:
        """Return the paper's winner where the data are the paper's own, else nothing; `data` as a study records it."""
        is_own = not self.experiment.has_images or data.rpartition("-")[0] == _PAPERS_IMAGES
        return self.published if is_own else _NOTHING

    def _settings(self, axis: str, value: Any, reader: RunConfig) -> Mapping[str, Plain]:
        axes = {name: axis for stage in self.stages for name, axis in stage.axes.items()}
        if axis not in axes:
            raise ValueError(f"its axes are {', '.join(axes)}, but got {axis!r}.")
        declared = axes[axis]
        if isinstance(declared, Variants):
            if value not in declared.settings:
                raise ValueError(f"the axis {axis!r} has the labels {list(declared.settings)}, but got {value!r}.")
            return declared.settings[value]
        plain = reader.read(axis, value)
        if not isinstance(declared, Domain) and plain not in declared:
            raise ValueError(f"the axis {axis!r} has the values {list(declared)}, but got {value!r}.")
        return {axis: plain}

    def _check_seeds(self) -> None:
        for name in ("tuning_seeds", "report_seeds"):
            seeds = getattr(self, name)
            is_whole = all(type(seed) is int and 0 <= seed < 2**63 for seed in seeds)
            if not seeds or not is_whole or len(set(seeds)) != len(seeds):
                raise ValueError(f"`{name}` must be different whole numbers from 0 to 2^63 - 1, but got {seeds!r}.")
        if shared := sorted(set(self.tuning_seeds) & set(self.report_seeds)):
            raise ValueError(f"tuning and report seeds must have none in common, but both have {shared}.")

    def _check_owners(self) -> None:
        """Raise a ValueError unless there is something to search and no path is set twice."""
        names = [stage.name for stage in self.stages]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"there must be at least one stage, each with a name of its own, but got {names}.")
        # A later stage's axis may have its first value in `base`; for the first stage that would have no effect.
        owners = dict.fromkeys(set(self.base) & self.stages[0].paths(), "`base`")
        for stage in self.stages:
            for name in stage.axes:
                for path in sorted({name} | stage.paths_of(name)):
                    ours = f"the axis {name!r} of the stage {stage.name!r}"
                    if path in owners:
                        raise ValueError(f"only one may set {path!r}, but both {owners[path]} and {ours} do.")
                    owners[path] = ours

    def _check_cells(self) -> None:
        """Raise a ValueError unless all cells are possible under `paper`, with earlier axes published or first."""
        winner: dict[str, Plain] = {}
        for index, stage in enumerate(self.stages):
            points = stage.probes() if stage.is_sampled else stage.grid()
            first, *_ = [self.cell_from(index, values, winner).varied for values in points]
            winner = {axis: self.published.get(axis, value) for axis, value in first.items()}

    def _check_overrides(self, overrides: Mapping[str, Any], reader: RunConfig) -> None:
        for path, value in overrides.items():
            reader.read(path, value)
            for stage in self.stages:
                if path in stage.paths():
                    raise ValueError(f"{path} must not be set, as the stage {stage.name!r} varies it; leave it out.")

    def _error(self, text: str) -> ValueError:
        return ValueError(f"Search space {self.name!r}: {text}")


def load_space(text: str) -> SearchSpace:
    """Load a space by its name, or by the path of a file that defines `SPACE`.

    Raises:
        ValueError: If there is none, or it cannot be read; the message has file, line and cause.
    """
    return SPACES.load(text, SearchSpace)


space_names = SPACES.names
