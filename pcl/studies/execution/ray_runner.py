"""Runs trials on Ray Tune. What happened is read from the study's folder, never from Tune's own state.

Tune keeps workers busy with the trials that are left, and restarts a trial whose worker died. It restores nothing: a
new driver looks at the folders and runs what has not ended.
"""

import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pcl.studies.cluster.session import available_resources, daemons
from pcl.studies.execution.monitoring import Gauges
from pcl.studies.execution.resources import Resources
from pcl.studies.execution.runner import Assignment, Events, Source, fail_unended
from pcl.studies.ledger.folders import SCRATCH
from pcl.studies.space.trial import Trial

# A trial whose worker died is started again this often, from its last checkpoint.
MOST_RESTARTS = 3
# As many trials wait as there are slots, and no fewer than this: clusters grow by what waits.
_FEWEST_ASKED = 16

Trainable = Callable[[dict[str, Any]], None]


class RayRunner:
    """A `TrialRunner` on the Ray cluster that this process has joined; benchmarks have a trainable of their own."""

    def __init__(self, resources: Resources, trainable: Trainable | None = None) -> None:
        self.resources, self._trainable = resources, trainable

    def run_trials(self, trials: Sequence[Trial], assignment: Assignment) -> None:
        """Run trials until every one has ended, or until interrupted.

        Trials that Tune leaves without a result are run once more: a worker that trained several died too often (run
        alone, each shows whose fault it was), or a late worker took the trial.
        """
        self._run_listed(trials, assignment, self.resources)
        left = _left(trials, assignment)
        if left and not assignment.interrupt.is_set():
            self._run_listed(left, assignment, replace(self.resources, side_by_side=1))
        fail_unended(trials, assignment)

    def run_source(self, source: Source, assignment: Assignment) -> None:
        at_once = max(1, replace(self.resources, side_by_side=1).slots(available_resources()))
        self._fit(source, assignment, 1, at_once)
        left = _left(source.trials, assignment)
        if left and not assignment.interrupt.is_set():
            self._run_listed(left, assignment, self.resources)
        fail_unended(left, assignment)
        for trial in source.trials:
            source.ended(trial.key)

    def gauges(self, **labels: str) -> Gauges:
        return Gauges(**labels)

    def _run_listed(self, trials: Sequence[Trial], assignment: Assignment, resources: Resources) -> None:
        from pcl.studies.execution.tune_adapter import Listed  # noqa: PLC0415  Ray takes seconds, and reads the environment that was set

        size, n_workers = resources.groups(len(trials), resources.slots(available_resources()))
        if assignment.stopping is not None:  # which decides about trials one by one
            size, n_workers = 1, resources.most_at_once
        self._fit(Listed(trials), assignment, size, n_workers)

    def _fit(self, source: Source, assignment: Assignment, size: int, n_workers: int) -> None:
        """Have Tune ask for trials as it has room for them: given a long list, it would copy all of it for each entry.

        A worker trains `size` trials side by side; 0 workers means as many as fit.
        """
        from ray import tune  # noqa: PLC0415  Ray takes seconds, and reads the environment that was set

        from pcl.studies.execution import tune_adapter as adapter  # noqa: PLC0415  Ray takes seconds, and reads the environment that was set
        from pcl.studies.execution.worker import Job  # noqa: PLC0415  torch takes seconds

        resources, interrupt, study = self.resources, assignment.interrupt, assignment.study
        # Its name is of this driver alone: one that has lost the study must not stop the workers of the next.
        stop = (study.path / SCRATCH / f"stop-{uuid.uuid4().hex}").absolute()

        def job_of(trial: Trial) -> dict[str, Any]:
            job = Job.for_trial(trial, study, assignment.metric, resources)
            return replace(job, stop=str(stop)).as_config()

        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(max(_FEWEST_ASKED, resources.slots(available_resources())))
        tuner = tune.Tuner(
            tune.with_resources(self._trainable or adapter.run_jobs, {"cpu": resources.cpus, "gpu": resources.gpus}),
            tune_config=tune.TuneConfig(
                search_alg=adapter.Proposals(source, job_of, interrupt, size),
                max_concurrent_trials=n_workers or None,
                scheduler=adapter.Halving(assignment.stopping) if assignment.stopping else adapter.RestartedFirst(),
                num_samples=-1,
                reuse_actors=True,
                trial_name_creator=lambda trial: str(trial.trial_id),
                trial_dirname_creator=lambda trial: str(trial.trial_id),
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str((study.path / SCRATCH).absolute()),
                callbacks=[adapter.TrialEvents(Events(assignment.listener, interrupt)), adapter.Silence()],
                stop=adapter.StopAll(interrupt, stop),
                failure_config=tune.FailureConfig(max_failures=MOST_RESTARTS),
                verbose=0,
            ),
        )
        leaving = interrupt.leaving.without(daemons(), interrupt.on_lost_ray)
        try:
            with adapter.keys_kept_here(), adapter.kills_as_deaths_of_workers(), leaving:
                tuner.fit()
        finally:
            with suppress(OSError):
                stop.unlink()


def _left(trials: Sequence[Trial], assignment: Assignment) -> list[Trial]:
    return [trial for trial in trials if assignment.study.trial(trial.key).result() is None]
