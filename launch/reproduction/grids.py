"""Grids behind the paper's tables of hyperparameters: searches that have not run yet, and the winners."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from launch.reproduction.cells import Setting, study_name
from pcl.config.run_config import Plain
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.ledger.typed_json import parsed
from pcl.studies.paper.comparison import Line, winner_lines
from pcl.studies.paper.published import published_grids
from pcl.studies.session.strategies import StageSearch
from pcl.studies.session.study_session import Study, search_study
from pcl.studies.space.search_space import SearchSpace, load_space
from pcl.studies.space.trial import Trial


@dataclass(frozen=True)
class GridStudy:
    """Search of one of the paper's spaces."""

    table: str  # name of the table that it is in
    heading: str  # its name in that table
    space: SearchSpace
    spec: StudySpec | None  # None if the profile does not allow it
    folder: StudyFolder
    mark: str  # of all our results
    why_not: str  # why there is no study

    def is_left(self, is_rerun: bool = False) -> bool:
        """Return whether there is something to search; with `is_rerun`, always, if the search is possible."""
        return self.spec is not None and (is_rerun or self.best() is None)

    def best(self) -> dict[str, Plain] | None:
        """Return the winner's values by axis, or None without a winner."""
        try:
            return parsed(self.folder.path / "summary.json", _varied_by_best)
        except FileNotFoundError:
            return None

    def first_trials(self) -> list[Trial]:
        """Return the trials of the first stage, which need no winner."""
        return [] if self.spec is None else self.spec.trials(self.space, 0, {})

    def study(self) -> Study[StageSearch]:
        """Return the study for a session: on the tuning seeds only, with its files written silently."""
        assert self.spec is not None
        return search_study(self.folder, StageSearch(self.space, self.spec, is_told=False))

    def lines(self) -> list[Line]:
        """Return published values and ours, a line for each axis."""
        cause = f"not possible: {self.why_not}" if self.why_not else "not run"
        return winner_lines(self.heading, self.space.published, self.best() if self.spec else None, cause, self.mark)


def _varied_by_best(summary: Any) -> dict[str, Plain] | None:
    best = summary["best"]
    return dict(best["varied"]) if best else None


def asked_grids(names: Sequence[str], setting: Setting, storage: Storage) -> list[GridStudy]:
    """Return the studies behind the tables of hyperparameters."""
    found = []
    for grid in published_grids():
        for name, heading in grid.spaces.items() if grid.name in names else ():
            space = load_space(name)
            images = setting.images_of(space.task)
            seeds = space.tuning_seeds if setting.scale == "paper" else space.tuning_seeds[:1]
            spec = StudySpec(
                name, space.fingerprint(), setting.profile, setting.scale, {**setting.overrides, **images.values},
                seeds, space.report_seeds, images.data,
            )  # fmt: skip
            mark = setting.mark(space.task)
            folder = storage.study(study_name(spec, storage))
            why_not = ""
            try:
                spec.trials(space, 0, {})
            except ValueError as error:
                why_not = str(error)
            found.append(GridStudy(grid.name, heading, space, None if why_not else spec, folder, mark, why_not))
    return found
