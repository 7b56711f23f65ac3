"""Runs trials on Ray Tune. What happened is read from the study's folder, never from Tune's own state.

Tune is asked for one thing: to keep workers busy with the trials that are left, and to start a trial again whose worker
died. It is not asked to restore anything: a new driver looks at the folders and runs what has not ended.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl.config.failure import Failure, FailureKind
from pcl.studies.cluster.session import available_resources, daemons
from pcl.studies.execution.interfaces import Listener, Source
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.resources import Resources
from pcl.studies.ledger.folders import Result, Status, StudyFolder
from pcl.studies.space.trial import Trial

if TYPE_CHECKING:
    from ray.tune.schedulers import TrialScheduler

# A trial whose worker died is started again this often, from its last checkpoint.
MOST_RESTARTS = 3
# As many trials wait for a place as there are places, and no fewer than this: clusters grow by what waits.
_FEWEST_ASKED = 16


def run_trials(
    trials: Sequence[Trial], study: StudyFolder, objective: str, resources: Resources, listener: Listener,
    interrupt: Interrupt, scratch: Path, trainable: Callable[[dict[str, Any]], None] | None = None,
    scheduler: "TrialScheduler | None" = None, n_tries: int = 2,
) -> None:  # fmt: skip
    """Run trials until every one has ended, or until interrupted.

    Args:
        trials: Those that have not ended yet.
        study: Where their folders are.
        objective: Metric that the listener is told.
        resources: Of each trial.
        listener: Told of every event, in this thread.
        interrupt: Looked at several times a second.
        scratch: Folder for Tune's own files.
        trainable: What a worker does with a job; `run_jobs` unless a benchmark wants another.
        scheduler: Tune's, which may end trials early; it then leaves a result in their folders.
        n_tries: How often trials are handed to Tune that it leaves without a result.
    """
    from pcl.studies.execution.tune_adapter import Listed, Proposals  # noqa: PLC0415

    size, n_workers = resources.groups(len(trials), resources.slots(available_resources()))
    if scheduler is not None:  # which decides about trials one by one
        size, n_workers = 1, resources.most_at_once
    proposals = Proposals(Listed(trials), lambda t: _job(t, study, objective, resources), interrupt, size)
    search = {"search_alg": proposals, "max_concurrent_trials": n_workers or None, "scheduler": scheduler}
    _fit(search, resources, listener, interrupt, scratch, trainable)
    left = [trial for trial in trials if study.trial(trial.key).result() is None]
    # A worker of several died too often (each alone shows whose fault it was), or a late worker took the trial.
    if left and n_tries > 1 and not interrupt.is_set():
        alone = replace(resources, side_by_side=1)
        run_trials(left, study, objective, alone, listener, interrupt, scratch, trainable, scheduler, n_tries - 1)
    _close(trials, study, listener, interrupt)


def run_source(
    source: Source, study: StudyFolder, objective: str, resources: Resources, listener: Listener,
    interrupt: Interrupt, scratch: Path, scheduler: "TrialScheduler | None" = None,
) -> None:  # fmt: skip
    """Run trials as they come, each asked for when there is room for it; for the rest see `run_trials`."""
    from pcl.studies.execution.tune_adapter import Proposals  # noqa: PLC0415

    proposals = Proposals(source, lambda trial: _job(trial, study, objective, resources), interrupt)
    at_once = max(1, replace(resources, side_by_side=1).slots(available_resources()))
    search = {"search_alg": proposals, "max_concurrent_trials": at_once, "scheduler": scheduler}
    _fit(search, resources, listener, interrupt, scratch, None)
    left = [trial for trial in source.trials if study.trial(trial.key).result() is None]
    if left and not interrupt.is_set():
        run_trials(left, study, objective, resources, listener, interrupt, scratch, None, scheduler, n_tries=1)
    for trial in source.trials:
        source.ended(trial.key)


def _job(trial: Trial, study: StudyFolder, objective: str, resources: Resources) -> dict[str, Any]:
    from pcl.studies.execution.worker import Job  # noqa: PLC0415  torch

    study.path.mkdir(parents=True, exist_ok=True)
    device = "cuda" if resources.gpus else "cpu"
    folder = study.trial(trial.key)
    n_threads, store = max(1, int(resources.cpus)), folder.mirror.uri
    return Job(trial, str(folder.path.absolute()), objective, n_threads, device, store).as_config()


def _fit(
    search: dict[str, Any], resources: Resources, listener: Listener, interrupt: Interrupt, scratch: Path,
    trainable: Callable[[dict[str, Any]], None] | None,
) -> None:  # fmt: skip
    """Tune asks for trials as it has room for them: of a long list it would copy all entries for each of them."""
    from ray import tune  # noqa: PLC0415

    from pcl.studies.execution.tune_adapter import Events, RestartedFirst, Silence, StopAll  # noqa: PLC0415
    from pcl.studies.execution.worker import run_jobs  # noqa: PLC0415

    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(max(_FEWEST_ASKED, resources.slots(available_resources())))
    tuner = tune.Tuner(
        tune.with_resources(trainable or run_jobs, {"cpu": resources.cpus, "gpu": resources.gpus}),
        tune_config=tune.TuneConfig(
            **{**search, "scheduler": search["scheduler"] or RestartedFirst()},
            num_samples=-1,
            reuse_actors=True,
            trial_name_creator=lambda trial: str(trial.trial_id),
            trial_dirname_creator=lambda trial: str(trial.trial_id),
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(scratch.absolute()),
            callbacks=[Events(listener, interrupt), Silence()],
            stop=StopAll(interrupt),
            failure_config=tune.FailureConfig(max_failures=MOST_RESTARTS),
            verbose=0,
        ),
    )
    with interrupt.leaving.without(daemons(), interrupt.set):
        tuner.fit()


def _close(trials: Sequence[Trial], study: StudyFolder, listener: Listener, interrupt: Interrupt) -> None:
    """Trials that are left without a result have failed, unless all were to stop."""
    for trial in trials:
        folder = study.trial(trial.key)
        if not interrupt.is_set() and folder.result() is None:
            folder.begin(trial)
            folder.close(Result(Status.FAILED, Failure(FailureKind.NO_RESULT)))
            listener.ended(folder)
