"""Ends trials early that fall behind (ASHA): Ray's scheduler, asked about judged reports only.

At a ninth and at a third of the part in which its metric is meaningful (`pcl.studies.results.metric_onset`), a trial
goes on if it is among the best third of those that have come so far and have the same phases: a joint training that
has just begun is not compared with one that begins with kappa where mu is trained already. A new driver fills the rungs
again from the trials' folders. A trial that has come to its end has finished, whatever the others have.
"""

from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial as TuneTrial
from ray.tune.schedulers import ASHAScheduler

from pcl.config.failure import Failure, FailureKind
from pcl.config.run_config import RunConfig
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.tune_adapter import RestartedFirst, folders_of
from pcl.studies.ledger.folders import Result, Status, StudyFolder
from pcl.studies.results.metric_onset import judged_curve
from pcl.studies.space.search_space import Objective

_FACTOR = 3  # of so many, one goes on
_N_RUNGS = 2


class Rungs:
    """ASHA over curves in percent.

    Args:
        objective: What decides; only its better end is looked at.
    """

    def __init__(self, objective: Objective) -> None:
        self._mode = objective.mode.value
        self._by_phases: dict[str, ASHAScheduler] = {}
        self._keys: set[str] = set()

    def goes_on(self, key: str, phases: str, percent: float, value: float) -> bool:
        """Whether a trial that is at this point of its curve is to go on; asked again about the same rung, it is."""
        asha = self._by_phases.setdefault(phases, self._new())
        trial: Any = SimpleNamespace(trial_id=key)
        controller: Any = None  # which ASHA has no use for
        if key not in self._keys:
            self._keys.add(key)
            asha.on_trial_add(controller, trial)
        answer = asha.on_trial_result(controller, trial, {"percent": percent, "value": value})
        return bool(answer != ASHAScheduler.STOP)

    def _new(self) -> ASHAScheduler:
        return ASHAScheduler(
            time_attr="percent", metric="value", mode=self._mode, max_t=100, grace_period=100 / _FACTOR**_N_RUNGS,
            reduction_factor=_FACTOR, stop_last_trials=False,
        )  # fmt: skip


class Halving(RestartedFirst):
    """Tune's scheduler of a stage's trials.

    Args:
        study: Its folders say how trials go.
        stage: Name of the stage; its trials are compared with each other.
        objective: What decides.
        interrupt: Set where a trial's files cannot be written.
    """

    def __init__(self, study: StudyFolder, stage: str, objective: Objective, interrupt: Interrupt) -> None:
        super().__init__()
        self._objective, self._interrupt = objective, interrupt
        self._rungs = Rungs(objective)
        for folder in study.trials():
            trial = folder.trial()
            if trial.stage == stage:
                for point in judged_curve(folder.rows(), trial.run_config, objective.metric):
                    self._goes_on(folder.key, trial.run_config, point)

    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> str:
        """Whether a trial goes on; one that does not is closed here, while its worker waits for the answer."""
        if "batch" not in result:
            return str(self.CONTINUE)
        (folder,) = folders_of(trial)
        try:
            folder.pull()
        except OSError:
            return str(self.CONTINUE)  # whoever is told of the report says so
        config, rows = folder.trial().run_config, folder.rows()
        is_judged = bool(rows) and rows[-1].batch == result["batch"]
        curve = judged_curve(rows, config, self._objective.metric) if is_judged else []
        is_at_its_end = result["batch"] == config.training.n_batches
        if not curve or is_at_its_end or self._goes_on(folder.key, config, curve[-1]):
            return str(self.CONTINUE)
        try:
            folder.claim()  # whoever writes after this has lost the trial
            told = f"by ASHA at batch {result['batch']} of {result['n_batches']}"
            folder.close(Result(Status.STOPPED, Failure(FailureKind.STOPPED_EARLY, told)))
        except OSError as error:
            self._interrupt.set(f"a trial's files cannot be written ({error})")
        return str(self.STOP)

    def _goes_on(self, key: str, config: RunConfig, point: tuple[float, float]) -> bool:
        return self._rungs.goes_on(key, str(config.training.phases), *point)

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune keeps a copy with the state that we do not use."""
        return {}
