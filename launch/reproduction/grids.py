"""The grids behind the paper's tables of hyperparameters: searched where they have not been, and what won."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launch.reproduction.cells import Setting, study_name
from launch.shared.command import say
from launch.shared.resume_command import REPRODUCE, resumable
from launch.shared.study_flags import provenance, resources_of
from pcl.studies.paper.comparison import Line, winner_lines
from pcl.studies.paper.published import published_grids

if TYPE_CHECKING:
    from pcl.config.run_config import Plain
    from pcl.studies.execution.interrupt import Interrupt
    from pcl.studies.ledger.folders import StudyFolder
    from pcl.studies.ledger.study_spec import StudySpec
    from pcl.studies.ledger.study_storage import Storage
    from pcl.studies.space.search_space import SearchSpace
    from pcl.studies.space.trial import Trial
    from pcl.studies.tracking.tracker import Tracker


@dataclass(frozen=True)
class GridStudy:
    """A search of one of the paper's spaces.

    Attributes:
        table: Name of the table that it is in.
        heading: What it is called there.
        space: What is searched.
        spec: What the study is; nothing where the profile does not have it.
        folder: Where it is kept.
        mark: Of all that is ours.
        why_not: Why there is no study.
    """

    table: str
    heading: str
    space: "SearchSpace"
    spec: "StudySpec | None"
    folder: "StudyFolder"
    mark: str
    why_not: str = ""

    @property
    def is_left(self) -> bool:
        """Whether it has to be searched, or searched on."""
        return self.spec is not None and self.best() is None

    def best(self) -> "dict[str, Plain] | None":
        """The winner's values by axis, once there is one."""
        try:
            best = json.loads((self.folder.path / "summary.json").read_text())["best"]
        except FileNotFoundError:
            return None
        return dict(best["varied"]) if best else None

    def first_trials(self) -> "list[Trial]":
        """Those that wait for no winner."""
        return [] if self.spec is None else self.spec.trials(self.space, 0, {})

    def lines(self) -> list[Line]:
        """Published and ours, axis by axis."""
        cause = f"not possible: {self.why_not}" if self.why_not else "not run"
        return winner_lines(self.heading, self.space.published, self.best() if self.spec else None, cause, self.mark)


def asked_grids(names: Sequence[str], setting: Setting, storage: "Storage") -> list[GridStudy]:
    """The studies of those tables that are of grids."""
    from pcl.studies.ledger.study_spec import StudySpec  # noqa: PLC0415
    from pcl.studies.space.search_space import load_space  # noqa: PLC0415

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
            folder = storage.study(study_name(spec))
            try:
                spec.trials(space, 0, {})
            except ValueError as error:
                found.append(GridStudy(grid.name, heading, space, None, folder, mark, str(error)))
            else:
                found.append(GridStudy(grid.name, heading, space, spec, folder, mark))
    return found


def search(grid: GridStudy, arguments: argparse.Namespace, tracker: "Tracker", interrupt: "Interrupt") -> None:
    """Search a grid on the Ray that is joined, into MLflow, as `launch/grid.py --no-finalize` does."""
    from pcl.studies.cluster.session import available_resources  # noqa: PLC0415
    from pcl.studies.execution.ray_runner import RayRunner  # noqa: PLC0415
    from pcl.studies.ledger.lease import keep_outputs  # noqa: PLC0415
    from pcl.studies.ledger.study_spec import opened  # noqa: PLC0415
    from pcl.studies.report.outputs import write_all  # noqa: PLC0415
    from pcl.studies.search.stages import Choices, Search, close  # noqa: PLC0415
    from pcl.studies.tracking.recorder import Recorder  # noqa: PLC0415
    from pcl.studies.tracking.tracker import StudyTags  # noqa: PLC0415

    space, spec, folder = grid.space, grid.spec, grid.folder
    assert spec is not None
    say(f"\n{grid.table}, {grid.heading}: study {folder.name}")
    resources = resources_of(arguments, available_resources())
    with opened(folder, spec, interrupt.set), resumable(folder, arguments, REPRODUCE):
        tags = StudyTags(space.name, spec.scale, spec.profile, space.objective.metric, spec.data, *provenance())
        parent = tracker.open_study(folder.name, tags)
        recorder = Recorder(tracker)
        choices = Choices(RayRunner(resources), False, arguments.rerun, arguments.fail_fast)
        finding = Search(space, spec, folder, tracker, recorder, choices, interrupt, say).run()
        files = write_all(folder, space, spec, finding)
        if finding.best is not None and (checkpoint := folder.trial(finding.best.trial.key).checkpoint).exists():
            files.append(checkpoint)
        for file in files:
            recorder.submit_artifact(parent, file)
        keep_outputs(folder, interrupt.cause, say)
        if missing := close(finding, tracker, recorder, space.objective.metric, bool(interrupt.cause)):
            say(f"MLflow lacks {len(missing)} records (such as {missing[0]}); they are kept in {folder.path}.")
