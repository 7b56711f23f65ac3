"""Progress of a running study: a line for every trial that ends, and one live line for the rest."""

import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Self

from pcl.metrics.undefined import told, told_with_error
from pcl.presentation.durations import duration
from pcl.storage.files import Damaged
from pcl.studies.execution.interrupt import Interrupt, StopReason
from pcl.studies.execution.monitoring import BEST_OBJECTIVE, TRIALS, WORKER_DEATHS, Gauges
from pcl.studies.ledger.folders import TrialFolder
from pcl.studies.ledger.repeating import Repeating
from pcl.studies.results.selection import Outcome, winner
from pcl.studies.space.search_space import Objective
from pcl.studies.space.trial import Trial
from pcl.studies.space.workload import work_of
from pcl.studies.tracking.recorder import Recorder

_ENDS = ("finished", "stopped", "failed")
_WIDTH = 100  # letters of the line on a terminal


class Progress(Repeating):
    """A `Listener` that shows how a stage's trials go and has them recorded.

    `trials` is empty if they are not known from the start; they are then read from the folders. `outcomes` are those of
    trials that have ended before. With `is_fail_fast`, the first failure sets the interrupt.
    """

    def __init__(
        self, trials: Sequence[Trial], n_trials: int, outcomes: Sequence[Outcome], objective: Objective,
        recorder: Recorder, interrupt: Interrupt, is_fail_fast: bool, say: Callable[[str], None], gauges: Gauges,
        is_on_gpu: bool = False,
    ) -> None:  # fmt: skip
        self._trials, self._n_trials = {trial.key: trial for trial in trials}, n_trials
        self._outcomes = {outcome.trial.key: outcome for outcome in outcomes}
        self._work = {trial.key: work_of(trial, is_on_gpu) for trial in trials}  # all other trials count the same
        self._work_to_do = (sum(self._work.values()) or n_trials) - sum(map(self._work_of, self._outcomes))
        self._work_ended = 0.0
        self._shares_before: dict[str, float] = {}  # key -> share done when this stage first started the trial
        self._n_by_state = Counter(map(_state, self._outcomes.values()))
        self._best = winner(outcomes, objective)
        self._objective, self._recorder, self._interrupt = objective, recorder, interrupt
        self._is_fail_fast, self._say, self._gauges = is_fail_fast, say, gauges
        self._n_deaths = 0
        self._running: dict[str, tuple[float, float]] = {}  # key -> share done, objective
        self._started = time.perf_counter()
        self._is_terminal = sys.stdout.isatty()
        self._lock = threading.Lock()
        super().__init__(self._show, 1.0 if self._is_terminal else 15.0, "pcl-progress")

    def __enter__(self) -> Self:
        self._publish()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._clear()

    def started(self, folder: TrialFolder) -> None:
        share = _share_done(folder)
        with self._lock:
            self._running[folder.key] = (share, math.nan)
            if folder.key not in self._shares_before:
                self._shares_before[folder.key] = share
                self._work_to_do -= share * self._work_of(folder.key)
        self._publish()

    def reported(self, folder: TrialFolder, batch: int, n_batches: int, objective: float) -> None:
        with self._lock:
            self._running[folder.key] = (batch / n_batches, objective)
        self._recorder.submit(folder)

    def restarted(self, folder: TrialFolder) -> None:
        self._n_deaths += 1
        with self._lock:
            self._running.pop(folder.key, None)  # it waits for a place
        self._publish()
        self._tell(f"  worker died; another goes on with {self._trial(folder).label}")

    def noted(self, folder: TrialFolder, text: str) -> None:
        self._tell(f"  {self._trial(folder).label}: {text}")

    def ended(self, folder: TrialFolder) -> None:
        try:
            outcome = Outcome.of(self._trial(folder), folder)
        except OSError as error:
            self._interrupt.set(StopReason.UNUSABLE_FILES, error)
            return
        with self._lock:
            self._running.pop(folder.key, None)
            is_new = folder.key not in self._outcomes
            self._add(outcome)
        self._publish()
        self._recorder.submit(folder)
        if is_new:
            n_done = len(self._outcomes)
            self._tell(f"  {n_done:>3}/{self._n_trials}  {described(outcome, self._objective)}")
        if not outcome.is_finished and not outcome.is_stopped and self._is_fail_fast:
            self._interrupt.set(StopReason.TRIAL_FAILED, outcome.cause)

    def line(self) -> str:
        """Return the state in a line."""
        with self._lock:
            counts, running, best = dict(self._n_by_state), dict(self._running), self._best
        parts = [f"{sum(counts.values())}/{self._n_trials} done"]
        parts += [f"{counts['failed']} failed"] if counts.get("failed") else []
        parts += [f"{counts['stopped']} stopped early"] if counts.get("stopped") else []
        shares = " ".join(f"{share:.0%}" for share, _ in running.values())
        parts += [f"{len(running)} running ({shares})"] if running else []
        parts += [f"best {told(best.mean(self._objective.metric))} ({best.trial.label})"] if best else []
        waiting = self._recorder.errors
        parts += [f"MLflow is away, {len(waiting)} records wait"] if waiting else []
        return "  ".join([*parts, f"ETA {self._eta(running)}"])

    def _add(self, outcome: Outcome) -> None:
        """Count an outcome and check whether it is the best, without a loop over all others: there may be thousands."""
        key = outcome.trial.key
        before = self._outcomes.get(key)
        self._outcomes[key] = outcome
        self._n_by_state[_state(outcome)] += 1
        if before is not None:
            self._n_by_state[_state(before)] -= 1
            self._best = winner(self._outcomes.values(), self._objective)
        else:
            self._work_ended += self._work_done_here(key, 1.0)
            self._best = winner([*([self._best] if self._best else []), outcome], self._objective)

    def _publish(self) -> None:
        with self._lock:
            counts, n_running, best = dict(self._n_by_state), len(self._running), self._best
        counts |= {"waiting": self._n_trials - sum(counts.values()) - n_running, "running": n_running}
        for state in ("waiting", "running", *_ENDS):
            self._gauges.set(TRIALS, counts.get(state, 0), state=state)
        self._gauges.set(WORKER_DEATHS, self._n_deaths)
        if best:
            self._gauges.set(BEST_OBJECTIVE, best.mean(self._objective.metric))

    def _trial(self, folder: TrialFolder) -> Trial:
        return self._trials.get(folder.key) or folder.trial()

    def _work_of(self, key: str) -> float:
        return self._work.get(key, 1.0)

    def _work_done_here(self, key: str, share: float) -> float:
        """Return a trial's work so far, without what was done before the study was resumed."""
        return max(0.0, share - self._shares_before.get(key, 0.0)) * self._work_of(key)

    def _eta(self, running: dict[str, tuple[float, float]]) -> str:
        done = self._work_ended + sum(self._work_done_here(key, share) for key, (share, _) in running.items())
        left = self._work_to_do - done
        return duration((time.perf_counter() - self._started) * left / done) if done else "?"

    def _show(self) -> None:
        if self._is_terminal:
            print(f"\r\033[K{self.line()[:_WIDTH]}", end="", flush=True)
        else:
            self._say(self.line())

    def _tell(self, line: str) -> None:
        self._clear()
        self._say(line)

    def _clear(self) -> None:
        if self._is_terminal:
            print("\r\033[K", end="", flush=True)


def _share_done(folder: TrialFolder) -> float:
    try:
        rows = folder.rows()
    except (OSError, Damaged):
        return 0.0  # the worker repairs the files, or reports what is wrong with them
    return rows[-1].batch / rows[-1].n_batches if rows else 0.0


def _state(outcome: Outcome) -> str:
    finished, stopped, failed = _ENDS
    return finished if outcome.is_finished else stopped if outcome.is_stopped else failed


def described(outcome: Outcome, objective: Objective) -> str:
    """Return a trial's value, or why it has none, with its settings."""
    mean, error = outcome.mean(objective.metric), outcome.standard_error(objective.metric)
    value = told_with_error(mean, error, ">7.3f", ".3f")
    reused = f"  (from study {outcome.result.reused_from})" if outcome.result and outcome.result.reused_from else ""
    if outcome.is_stopped:
        return f"{value}  {outcome.trial.label}: {outcome.cause}"
    if not outcome.is_finished:
        return f" FAILED  {outcome.trial.label}: {outcome.cause}"
    lost = f"  lost {len(outcome.failures)} of {len(outcome.by_seed)} seeds" if outcome.failures else ""
    return f"{value}  {outcome.trial.label}  {outcome.seconds:.1f} s{lost}{reused}"
