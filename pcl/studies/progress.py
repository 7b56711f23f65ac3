"""What is seen of a study while it runs: a line for every trial that ends, and one live line for the rest."""

import math
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

from pcl.studies.ledger import Trial, TrialFolder
from pcl.studies.monitoring import BEST_OBJECTIVE, TRIALS, WORKER_DEATHS, Gauges
from pcl.studies.recorder import Recorder
from pcl.studies.runner import Interrupt
from pcl.studies.selection import Outcome, winner
from pcl.studies.space import Objective


class Progress:
    """A `Listener` that shows how a stage's trials go and has them recorded.

    Args:
        trials: Those that are known of from the start; of others the folder has to tell.
        n_trials: How many the stage will have.
        outcomes: Of those that have ended before.
        objective: What is shown of them.
        recorder: Told of every report and end.
        interrupt: Set at the first failure where `is_fail_fast`.
        is_fail_fast: Whether to stop at the first failure.
        say: Prints a line.
        gauges: Tell Ray's monitoring how many trials wait, run and have ended.
    """

    def __init__(
        self, trials: Sequence[Trial], n_trials: int, outcomes: Sequence[Outcome], objective: Objective,
        recorder: Recorder, interrupt: Interrupt, is_fail_fast: bool, say: Callable[[str], None], gauges: Gauges,
    ) -> None:  # fmt: skip
        self._trials, self._n_trials = {trial.key: trial for trial in trials}, n_trials
        self._outcomes = {outcome.trial.key: outcome for outcome in outcomes}
        self._n_before = len(self._outcomes)
        self._objective, self._recorder, self._interrupt = objective, recorder, interrupt
        self._is_fail_fast, self._say, self._gauges = is_fail_fast, say, gauges
        self._n_deaths = 0
        self._running: dict[str, tuple[float, float]] = {}  # key -> share done, objective
        self._started = time.perf_counter()
        self._is_terminal = sys.stdout.isatty()
        self._lock = threading.Lock()
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pcl-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._publish()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_done.set()
        self._thread.join()
        self._clear()

    def started(self, folder: TrialFolder) -> None:
        """A worker has taken a trial."""
        with self._lock:
            self._running[folder.key] = (0.0, math.nan)
        self._publish()

    def reported(self, folder: TrialFolder, batch: int, n_batches: int, objective: float) -> None:
        """A trial has published a report."""
        with self._lock:
            self._running[folder.key] = (batch / n_batches, objective)
        self._recorder.submit(folder)

    def restarted(self, folder: TrialFolder) -> None:
        """A trial's worker died and another takes over."""
        self._n_deaths += 1
        self._publish()
        self._tell(f"  worker died; another goes on with {self._trial(folder).label}")

    def ended(self, folder: TrialFolder) -> None:
        """A trial has a result."""
        outcome = Outcome.of(self._trial(folder), folder)
        with self._lock:
            self._running.pop(folder.key, None)
            is_new = folder.key not in self._outcomes
            self._outcomes[folder.key] = outcome
        self._publish()
        self._recorder.submit(folder)
        if is_new:
            n_done = len(self._outcomes)
            self._tell(f"  {n_done:>3}/{self._n_trials}  {described(outcome, self._objective)}")
        if not outcome.is_finished and not outcome.is_stopped and self._is_fail_fast:
            self._interrupt.set(f"a trial failed ({outcome.cause})")

    def line(self) -> str:
        """How things stand."""
        with self._lock:
            outcomes, running = list(self._outcomes.values()), dict(self._running)
        n_stopped = sum(outcome.is_stopped for outcome in outcomes)
        n_failed = sum(not outcome.is_finished for outcome in outcomes) - n_stopped
        best = winner(outcomes, self._objective)
        parts = [f"{len(outcomes)}/{self._n_trials} done"]
        parts += [f"{n_failed} failed"] if n_failed else []
        parts += [f"{n_stopped} stopped early"] if n_stopped else []
        shares = " ".join(f"{share:.0%}" for share, _ in running.values())
        parts += [f"{len(running)} running ({shares})"] if running else []
        parts += [f"best {best.mean(self._objective.metric):.3f} ({best.trial.label})"] if best else []
        waiting = self._recorder.errors
        parts += [f"MLflow is away, {len(waiting)} records wait"] if waiting else []
        return "  ".join([*parts, f"ETA {self._eta(running)}"])

    def _publish(self) -> None:
        with self._lock:
            outcomes, n_running = list(self._outcomes.values()), len(self._running)
        n_finished = sum(outcome.is_finished for outcome in outcomes)
        n_stopped = sum(outcome.is_stopped for outcome in outcomes)
        counts = {
            "waiting": self._n_trials - len(outcomes) - n_running, "running": n_running,
            "finished": n_finished, "stopped": n_stopped, "failed": len(outcomes) - n_finished - n_stopped,
        }  # fmt: skip
        for state, n_trials in counts.items():
            self._gauges.set(TRIALS, n_trials, state=state)
        self._gauges.set(WORKER_DEATHS, self._n_deaths)
        if best := winner(outcomes, self._objective):
            self._gauges.set(BEST_OBJECTIVE, best.mean(self._objective.metric))

    def _trial(self, folder: TrialFolder) -> Trial:
        return self._trials.get(folder.key) or folder.trial()

    def _eta(self, running: dict[str, tuple[float, float]]) -> str:
        done = len(self._outcomes) - self._n_before + sum(share for share, _ in running.values())
        left = self._n_trials - self._n_before - done
        return duration((time.perf_counter() - self._started) * left / done) if done else "?"

    def _watch(self) -> None:
        while not self._is_done.wait(1.0 if self._is_terminal else 15.0):
            if self._is_terminal:
                width = 100
                print(f"\r\033[K{self.line()[:width]}", end="", flush=True)
            else:
                self._say(self.line())

    def _tell(self, line: str) -> None:
        self._clear()
        self._say(line)

    def _clear(self) -> None:
        if self._is_terminal:
            print("\r\033[K", end="", flush=True)


def described(outcome: Outcome, objective: Objective) -> str:
    """A trial's value, or why it has none, with its settings."""
    value = f"{outcome.mean(objective.metric):>7.3f}{plus_minus(outcome.standard_error(objective.metric))}"
    reused = f"  (from study {outcome.result.reused_from})" if outcome.result and outcome.result.reused_from else ""
    if outcome.is_stopped:
        return f"{value}  {outcome.trial.label}: {outcome.cause}"
    if not outcome.is_finished:
        return f" FAILED  {outcome.trial.label}: {outcome.cause}"
    lost = f"  lost {len(outcome.failures)} of {len(outcome.by_seed)} seeds" if outcome.failures else ""
    return f"{value}  {outcome.trial.label}  {outcome.seconds:.1f} s{lost}{reused}"


def plus_minus(error: float) -> str:
    """A standard error behind its mean."""
    return "" if math.isnan(error) else f" ± {error:.3f}"


def duration(seconds: float) -> str:
    """Minutes and seconds, with hours or days before them where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
