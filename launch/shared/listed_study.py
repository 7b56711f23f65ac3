"""Runs a study whose trials are given, on Ray and into MLflow: what `ablate.py` and `reproduce.py` have in common."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from launch.shared.backbone_weights import Missing, chosen_weights
from launch.shared.command import say, settings
from launch.shared.image_choice import chosen_data, named, skipping
from launch.shared.resume_command import command_to_resume, resumable
from launch.shared.study_flags import machine, resources_of

if TYPE_CHECKING:
    from pcl.config.run_config import Plain
    from pcl.studies.execution.interrupt import Interrupt
    from pcl.studies.execution.resources import Cost, Resources
    from pcl.studies.ledger.folders import StudyFolder
    from pcl.studies.ledger.study_spec import StudySpec
    from pcl.studies.results.selection import Outcome
    from pcl.studies.space.search_space import Objective
    from pcl.studies.space.trial import Trial
    from pcl.studies.tracking.tracker import StudyTags, Tracker

WEIGHTS = "encoder.weights"


@dataclass(frozen=True)
class Images:
    """Which images trials are of.

    Attributes:
        values: Settings that say it.
        data: Name and fingerprint.
        missing: A backbone that has to be trained first.
    """

    values: "dict[str, Plain]"
    data: str
    missing: Missing | None

    def with_weights(self) -> "Images":
        """The same with nothing missing: trains the backbone where there is none yet."""
        if self.missing is None:
            return self
        weights = self.missing.train("cuda" if machine()["GPU"] else "cpu")
        return Images({**self.values, WEIGHTS: weights}, self.data, None)

    @property
    def name(self) -> str:
        """Of the images, without the fingerprint."""
        return self.data.rpartition("-")[0] or self.data


NO_IMAGES = Images({}, "toy", None)


def refuse_image_flags(arguments: argparse.Namespace, kind: str, what_there_is: str) -> None:
    """Raise a ValueError if images are asked for where there are none."""
    if given := next((n for n in ("data", "weights", "skip_bad") if getattr(arguments, n) not in (None, False)), ""):
        raise ValueError(f"`--{given.replace('_', '-')}` is for {kind}, but {what_there_is}.")


def chosen_images(arguments: argparse.Namespace, scale: str) -> Images:
    """The images and the backbone that `--data`, `--weights` and `--set` ask for."""
    from pcl.config.run_config import RunConfig  # noqa: PLC0415  -h answers at once
    from pcl.encoders import ResNetEncoder  # noqa: PLC0415
    from pcl.tasks import CifarTask  # noqa: PLC0415

    asked = skipping(arguments.data, arguments.skip_bad)
    images = chosen_data(asked)
    width = settings(arguments.set).get("encoder.width")
    config = RunConfig.of({} if width is None else {"encoder.width": width}, scale=scale, task="images")
    assert isinstance(config.task, CifarTask.Config)
    assert isinstance(config.encoder, ResNetEncoder.Config)
    config.task.check(images)
    weights = chosen_weights(arguments.weights, images, config.encoder.width, scale)
    values: dict[str, Plain] = {"task.data": named(asked, images)}
    data = f"{images.name}-{images.fingerprint}"
    if isinstance(weights, Missing):
        return Images(values, data, weights)
    return Images({**values, WEIGHTS: weights}, data, None)


def check_settings(values: "Mapping[str, Plain]") -> None:
    """Raise a ValueError unless every setting is one of some run's."""
    from pcl.config.run_config import RunConfig  # noqa: PLC0415
    from pcl.losses import LOSSES  # noqa: PLC0415

    readers = [RunConfig.of(loss=loss, task=task) for loss in LOSSES for task in ("toy", "images")]
    for path, value in values.items():
        having = [reader for reader in readers if path in reader.paths()]
        (having or readers)[0].read(path, value)


@dataclass(frozen=True)
class Given:
    """A study whose trials are given.

    Attributes:
        folder: Where it is kept.
        spec: What it is.
        tags: By which MLflow finds it.
        objective: What is shown while it runs.
        trials: All of it.
        title: What is said of them.
    """

    folder: "StudyFolder"
    spec: "StudySpec"
    tags: "StudyTags"
    objective: "Objective"
    trials: "list[Trial]"
    title: str


def run_given(
    study: Given, arguments: argparse.Namespace, tracker: "Tracker", interrupt: "Interrupt", command: str,
    write: "Callable[[list[Outcome]], list[Path]]", on_open: Callable[[], None] = lambda: None,
) -> "list[Outcome]":  # fmt: skip
    """Run what is not known, on the Ray that is joined, and bring MLflow in line.

    Args:
        study: What to run.
        arguments: Of the command line.
        tracker: Of MLflow.
        interrupt: Ends it early.
        command: Which of the commands this is.
        write: Writes what was found to files, which go to MLflow too.
        on_open: Called once MLflow has the study.
    """
    from pcl.studies.cluster.session import available_resources  # noqa: PLC0415
    from pcl.studies.execution.ray_runner import RayRunner  # noqa: PLC0415
    from pcl.studies.execution.trial_execution import Choices, Execution, close_study  # noqa: PLC0415
    from pcl.studies.ledger.lease import keep_outputs  # noqa: PLC0415
    from pcl.studies.ledger.study_spec import opened  # noqa: PLC0415
    from pcl.studies.tracking.recorder import Recorder  # noqa: PLC0415
    from pcl.studies.tracking.tracker import End  # noqa: PLC0415

    available = available_resources()
    resources = resources_of(arguments, available)
    resources.require(available)
    if arguments.gpus_per_trial == "auto":
        resources = resources_of(arguments, available, _costs_there(resources, study.trials))
    with opened(study.folder, study.spec, interrupt.set), resumable(study.folder, arguments, command):
        parent = tracker.open_study(study.folder.name, study.tags)
        on_open()
        recorder = Recorder(tracker)
        choices = Choices(RayRunner(resources), False, arguments.rerun, arguments.fail_fast)
        execution = Execution(study.objective, study.folder, tracker, recorder, choices, interrupt, say)
        outcomes = execution.run_all(study.trials, study.title)
        for file in write(outcomes):
            recorder.submit_artifact(parent, file)
        keep_outputs(study.folder, interrupt.cause, say)
        is_any = any(outcome.is_finished for outcome in outcomes)
        end = End.KILLED if interrupt.cause else End.FINISHED if is_any else End.FAILED
        if missing := close_study(tracker, recorder, end, {}):
            say(
                f"MLflow lacks {len(missing)} records (such as {missing[0]}); they are kept in {study.folder.path}: "
                f"`{command_to_resume(study.folder, arguments, command)}` sends them."
            )
    return outcomes


def _costs_there(resources: "Resources", trials: "Sequence[Trial]") -> "list[Cost]":
    from pcl.studies.cluster.joining import on_a_node  # noqa: PLC0415
    from pcl.studies.report.plan import costs_of  # noqa: PLC0415

    device, n_threads = "cuda" if resources.gpus else "cpu", max(1, int(resources.cpus))
    return on_a_node(resources.cpus, resources.gpus, costs_of, trials, device, n_threads, True) or []
