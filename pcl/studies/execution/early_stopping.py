"""Early stopping of trials that fall behind (ASHA), by judged reports only.

At a ninth and at a third of the part in which its metric is meaningful (`pcl.studies.results.metric_onset`), a trial
goes on if it is among the best third of those that have got as far and have the same phases: a joint training that
has just begun is not compared with one that begins with kappa after mu is trained. A new driver refills the rungs from
the trials' folders. A trial that has reached its end has finished, whatever the others have reached.
"""

import numpy as np

from pcl.config.failure import Failure, FailureKind
from pcl.config.run_config import RunConfig
from pcl.studies.execution.interrupt import Interrupt, StopReason
from pcl.studies.ledger.folders import Result, Status, StudyFolder, TrialFolder
from pcl.studies.results.metric_onset import judged_curve
from pcl.studies.space.search_space import Mode, Objective

_FACTOR = 3  # one of this many goes on
_N_RUNGS = 2
_STARTS = tuple(100 / _FACTOR**_N_RUNGS * _FACTOR**rung for rung in range(_N_RUNGS))  # percent done


class Rungs:
    """ASHA over curves in percent: the rule of Ray's `ASHAScheduler`, decision by decision."""

    def __init__(self, objective: Objective) -> None:
        self._sign = 1.0 if objective.mode is Mode.MAX else -1.0
        self._by_phases: dict[str, list[dict[str, float]]] = {}

    def goes_on(self, key: str, phases: str, percent: float, value: float) -> bool:
        """Return whether a trial at this point of its curve goes on; asked again about the same rung, it does."""
        rungs = self._by_phases.setdefault(phases, [{} for _ in _STARTS])
        reached = [rung for start, rung in zip(_STARTS, rungs, strict=True) if percent >= start]
        if not reached or key in reached[-1]:
            return True
        others = list(reached[-1].values())
        reached[-1][key] = self._sign * value
        return not others or bool(self._sign * value >= np.percentile(others, (1 - 1 / _FACTOR) * 100))


class EarlyStopping:
    """Decides by the study's folders, at every report of a stage's trials, which of them go on.

    If a trial's files cannot be written, the study is interrupted.
    """

    def __init__(self, study: StudyFolder, stage: str, objective: Objective, interrupt: Interrupt) -> None:
        self._objective, self._interrupt = objective, interrupt
        self._rungs = Rungs(objective)
        for folder in study.trials():
            trial = folder.trial()
            if trial.stage == stage:
                for point in judged_curve(folder.rows(), trial.run_config, objective.metric):
                    self._goes_on(folder.key, trial.run_config, point)

    def stops(self, folder: TrialFolder, batch: int, n_batches: int) -> bool:
        """Return whether a trial ends at this report; one that does is closed here, while its worker waits."""
        try:
            folder.pull()
        except OSError:
            return False  # the listener of the report notices it too
        config, rows = folder.trial().run_config, folder.rows()
        is_judged = bool(rows) and rows[-1].batch == batch
        curve = judged_curve(rows, config, self._objective.metric) if is_judged else []
        is_at_its_end = batch == config.training.n_batches
        if not curve or is_at_its_end or self._goes_on(folder.key, config, curve[-1]):
            return False
        try:
            folder.claim()  # a worker that writes after this has lost the trial
            told = f"by ASHA at batch {batch} of {n_batches}"
            folder.close(Result(Status.STOPPED, Failure(FailureKind.STOPPED_EARLY, told)))
        except OSError as error:
            self._interrupt.set(StopReason.UNWRITABLE_FILES, error)
        return True

    def _goes_on(self, key: str, config: RunConfig, point: tuple[float, float]) -> bool:
        return self._rungs.goes_on(key, str(config.training.phases), *point)
