"""The specification of a study, kept in its folder; resuming a study with another one is refused."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pcl.config.canonical_settings import canonical_settings
from pcl.config.run_config import Plain
from pcl.config.suggestion import require_choice
from pcl.studies.ledger.folders import TRIALS, StudyFolder
from pcl.studies.ledger.typed_json import parsed, record, table
from pcl.studies.space.search_method import RANDOM, Method, draws, random_cells
from pcl.studies.space.search_space import SearchSpace
from pcl.studies.space.trial import Trial

_FORMAT = 1
SEARCH, ABLATION, REPRODUCTION = "search", "ablation", "reproduction"
COMMANDS = {SEARCH: ("grid", " --resume"), ABLATION: ("ablate", " --resume"), REPRODUCTION: ("reproduce", "")}
STUDY_FILE = "study.json"
_MENDED = "Put a copy of it back, or start a new study with another `--name`: it reuses finished trials from MLflow."
MADE_IN_PYTHON = "python:"  # prefix of the name of a space or an ablation without a file
_MOST_DRAWS = 1000  # in a row that are impossible or known, before a random search gives up


@dataclass(frozen=True)
class StudySpec:
    """Everything that decides a study's results."""

    space: str  # name, absolute path, or MADE_IN_PYTHON and a name
    fingerprint: str  # of the space's content
    profile: str
    scale: str
    overrides: dict[str, Plain] = field(default_factory=dict)  # settings of all runs, in one spelling
    tuning_seeds: tuple[int, ...] = (1, 2, 3)  # seeds that select
    report_seeds: tuple[int, ...] = (4, 5, 6, 7, 8)  # seeds of the final row
    data: str = "toy"  # fingerprint of the data
    method: Method = field(default_factory=Method)
    objectives: tuple[str, ...] = ()  # metrics; none for the space's own
    replicate: str = ""  # "auto" if the best get more seeds until it is clear which is best; else empty
    kind: str = SEARCH  # search, ablation or reproduction: the command it belongs to

    def __post_init__(self) -> None:
        object.__setattr__(self, "overrides", canonical_settings(self.overrides))
        if shared := sorted(set(self.tuning_seeds) & set(self.report_seeds)):
            report = ", ".join(map(str, self.report_seeds))
            raise ValueError(
                f"Tuning seeds (`--seeds`) must differ from the report seeds {report}, but got {shared[0]}."
            )
        require_choice("kind", self.kind, list(COMMANDS))

    @property
    def has_file(self) -> bool:
        """Return whether the space is defined in a user's own file."""
        return "/" in self.space

    def as_json(self) -> dict[str, Any]:
        """Return the content of study.json."""
        return {"format": _FORMAT, **asdict(self)}

    @classmethod
    def read(cls, folder: StudyFolder) -> "StudySpec":
        """Read study.json.

        Raises:
            ValueError: If there is no study in the folder, or it cannot be read.
        """
        path = folder.path / STUDY_FILE
        folder.mirror.pull(STUDY_FILE)
        try:
            spec = parsed(path, _spec_of)
        except FileNotFoundError:
            lost = ""  # there is no folder either
            if (folder.path / TRIALS).exists():
                lost = f"; {path.name} is missing beside its trials. {_MENDED}"
            elif folder.path.is_dir():
                lost = f"; its folder has no {path.name}."
            place = folder.mirror.uri or folder.path.parent
            raise ValueError(f"There is no study {folder.name!r} in {place}{lost or '.'}") from None
        except ValueError:
            raise ValueError(f"{path} is not readable; it was left as it is. {_MENDED}") from None
        if spec is None:
            raise ValueError(f"{path} is not of format {_FORMAT}; it was left as it is. {_MENDED}")
        return spec

    def difference(self, other: "StudySpec") -> str:
        """Return the first difference in words, or ""; the path of a space's file may differ, as in jobs."""
        ours, theirs = ({**asdict(spec), **asdict(spec.method), "method": ""} for spec in (self, other))
        if self.fingerprint == other.fingerprint and Path(self.space).name == Path(other.space).name:
            theirs["space"] = self.space
        for name, value in ours.items():
            if theirs[name] != value:
                what = {"fingerprint": "content of the space", "kind": "search", "n_trials": "trials"}.get(name, name)
                return f"{what}: {_shown(theirs[name])} there, {_shown(value)} here"
        return ""

    def n_trials(self, space: SearchSpace) -> tuple[int, ...]:
        """Return the number of trials of each stage, without a warm start."""
        return self.method.n_trials or space.n_trials

    def trials(self, space: SearchSpace, stage_index: int, winner: Mapping[str, Plain]) -> list[Trial]:
        """Return the trials of a stage of a grid or a random search.

        Raises:
            ValueError: If one is not possible; of a stage with ranges, if none is.
        """
        stage = space.stages[stage_index]
        if self.method.kind != RANDOM:
            points = list(stage.grid())
        elif stage.is_sampled:
            return self._drawn(space, stage_index, winner)
        else:
            points = random_cells(stage, self.method.n_trials[stage_index], self.method.seed)
        return [self.trial_at(space, stage_index, values, winner) for values in points]

    def corners(self, space: SearchSpace) -> list[Trial]:
        """Return trials that stand for the first stage: first and last of a grid, or the ends of ranges.

        Raises:
            ValueError: If one of the grid, or of those by which ranges are checked, is not possible.
        """
        stage = space.stages[0]
        points = list(stage.probes() if stage.is_sampled else stage.grid())
        trials = [self.trial_at(space, 0, values, {}) for values in points]
        return trials[:2] if stage.is_sampled else [trials[0], trials[-1]]

    def trial_at(
        self, space: SearchSpace, stage_index: int, values: Mapping[str, Plain], winner: Mapping[str, Plain]
    ) -> Trial:
        """Return the trial at these values of a stage's axes."""
        cell = space.cell_from(
            stage_index, values, winner, profile=self.profile, scale=self.scale, overrides=self.overrides
        )
        return Trial(cell.config.flat(), self.tuning_seeds, space.stages[stage_index].name, cell.varied, self.data)

    def _drawn(self, space: SearchSpace, stage_index: int, winner: Mapping[str, Plain]) -> list[Trial]:
        """Draw distinct valid points of a stage with ranges, as many as asked for or as there are."""
        found: dict[str, Trial] = {}
        cause, n_misses = "", 0
        for values in draws(space.stages[stage_index], self.method.seed):
            try:
                trial = self.trial_at(space, stage_index, values, winner)
            except ValueError as error:
                cause, n_misses = str(error), n_misses + 1
            else:
                n_misses = n_misses + 1 if trial.key in found else 0
                found[trial.key] = trial
            if len(found) == self.method.n_trials[stage_index] or n_misses == _MOST_DRAWS:
                break
        if not found:
            raise ValueError(cause)
        return list(found.values())


def _spec_of(content: Any) -> StudySpec | None:
    """Return what study.json says, or None where it is of another format."""
    rest = {name: value for name, value in table(content).items() if name != "format"}
    return record(StudySpec, rest) if content.get("format") == _FORMAT else None


def _shown(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else repr(value)
