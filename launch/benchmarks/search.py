"""Cost of finding the best cell with grid, random or Optuna search, with and without ASHA, on a table of results.

Nothing is trained: trials are looked up in a table (see `launch.benchmarks.search_table`), one at a time. A search has
found the best once a finished trial is within one standard error of the best cell's mean.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import optuna

from launch.benchmarks import Row, search_table
from launch.benchmarks.search_table import TABLE, Entry, read_entries, threshold_of, wide_space
from launch.shared.command import chosen_device, say, settings
from pcl.studies.execution.early_stopping import Rungs
from pcl.studies.search.optuna_study import Known, distributions_of, sampler_of, warned
from pcl.studies.search.proposals import MOST_REPEATS
from pcl.studies.space.search_method import OPTUNA, TPE, Method

_COLUMNS = {"trials": 0, "batches": 0, "percent": 1}  # with the number of decimals shown
_N_TRIALS = 30  # that the samplers plan for: a tenth of the grid


def measure(
    *, table: Path | None, repeats: int, make: bool, batches: int, overrides: Sequence[str], limit: float,
    device: str | None,
) -> list[Row]:  # fmt: skip
    """Make the table, or replay searches on it."""
    if make:
        return search_table.make(table or TABLE, batches, chosen_device(device), limit, settings(overrides))
    return replay(table or TABLE, repeats)


class Spent(NamedTuple):
    """Cost of a search: trials begun, batches trained, and the seconds they took when the table was made."""

    trials: int
    batches: int
    seconds: float


Search = Callable[[list[Entry], float, int, Rungs | None], Spent | None]  # cells, goal, seed, rungs of ASHA


def replay(table: Path, n_repeats: int) -> list[Row]:
    """Replay every kind of search with different seeds, and print a line for each."""
    entries = read_entries(table)
    goal = threshold_of(entries)
    whole = Spent(len(entries), sum(e.batches[-1] for e in entries), sum(e.seconds[-1] for e in entries))
    best = max(entry.value for entry in entries if entry.value is not None)
    n_good = sum(entry.value is not None and entry.value >= goal for entry in entries)
    say(f"{len(entries)} cells; the best has {best:.3f}, and {n_good} are within its standard error, {best - goal:.3f}")
    say(f"all of the grid: {whole.batches:,} batches, {whole.seconds:.0f} s")
    say(f"{'until one of those is found':<30}{'trials':>18}{'batches':>32}{'% of the time of all':>24}")
    rows: list[Row] = []
    kinds: dict[str, tuple[int, Search, bool]] = {  # repeats, search, with ASHA or without
        "grid, in its order": (1, _in_order, False),
        "random": (n_repeats, _at_random, False),
        "Optuna (TPE)": (n_repeats, _proposed, False),
        "random + ASHA": (n_repeats, _at_random, True),
        "Optuna (TPE) + ASHA": (n_repeats, _proposed, True),
    }
    for name, (n, search, is_asha) in kinds.items():
        found = [search(entries, goal, seed, Rungs(wide_space().objective) if is_asha else None) for seed in range(n)]
        row: Row = {"search": name, "repeats": n, "found": sum(spent is not None for spent in found)}
        costs = [spent if spent is not None else whole for spent in found]
        row["trials"] = _quartiles([spent.trials for spent in costs])
        row["batches"] = _quartiles([spent.batches for spent in costs])
        row["percent"] = _quartiles([100 * spent.seconds / whole.seconds for spent in costs])
        rows.append(row)
        trials, batches, percent = (_shown(row[key], digits) for key, digits in _COLUMNS.items())
        missed = f"  {n - row['found']} of {n} never" if row["found"] < n else ""
        say(f"{name:<30}{trials:>18}{batches:>32}{percent:>24}{missed}")
    return rows


def _in_order(entries: list[Entry], goal: float, _seed: int, rungs: Rungs | None) -> Spent | None:
    """Run cells one after the other; return the cost until one was good enough."""
    meter = _Meter(goal)
    for entry in entries:
        meter.run(entry, rungs)
        if meter.is_found:
            return meter.spent
    return None


def _at_random(entries: list[Entry], goal: float, seed: int, rungs: Rungs | None) -> Spent | None:
    return _in_order(random.Random(seed).sample(entries, len(entries)), goal, seed, rungs)


def _proposed(entries: list[Entry], goal: float, seed: int, rungs: Rungs | None) -> Spent | None:
    """Run cells as Optuna proposes them; if it repeats one, report the known result instead of running it."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    (stage,) = wide_space().stages
    method, distributions = Method(OPTUNA, (_N_TRIALS,), seed, TPE), distributions_of(stage)
    by_cell = {tuple(entry.cell.items()): entry for entry in entries}
    generator, study, meter = random.Random(seed), optuna.create_study(direction="maximize"), _Meter(goal)
    known: dict[int, Known] = {}
    n_repeats = 0
    while len(known) < len(entries):
        if n_repeats >= MOST_REPEATS:
            study.enqueue_trial(generator.choice([entry.cell for entry in entries if id(entry) not in known]))
        every = study.get_trials(deepcopy=False)
        study.sampler = warned(sampler_of(method, stage, _N_TRIALS, len(every)), study, every, distributions)
        trial = study.ask(distributions)
        entry = by_cell[tuple((name, trial.params[name]) for name in stage.axes)]
        n_repeats = n_repeats + 1 if id(entry) in known else 0
        if id(entry) not in known:
            known[id(entry)] = meter.run(entry, rungs)
        told = known[id(entry)]
        for percent, value in told.curve:
            trial.report(value, round(percent))
        study.tell(trial, told.values, told.state)
        if meter.is_found:
            return meter.spent
    return None


class _Meter:
    """Counter of the cost of replayed trials."""

    def __init__(self, goal: float) -> None:
        self._goal = goal
        self.spent, self.is_found = Spent(0, 0, 0.0), False

    def run(self, entry: Entry, rungs: Rungs | None) -> Known:
        """Run a cell to its end, or until it is stopped; return the result that a study would report to Optuna."""
        stop = entry.stopped_at(rungs) if rungs is not None else None
        index = len(entry.batches) - 1 if stop is None else entry.batches.index(stop)
        trials, batches, seconds = self.spent
        self.spent = Spent(trials + 1, batches + entry.batches[index], seconds + entry.seconds[index])
        if stop is not None:
            return Known(curve=[point for point, batch in entry.judged if batch <= stop])
        self.is_found = self.is_found or (entry.value is not None and entry.value >= self._goal)
        return Known(None if entry.value is None else [entry.value])


def _quartiles(values: list[float] | list[int]) -> list[float]:
    """Return the lower quartile, median and upper quartile."""
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [float(values[0])] * 3


def _shown(quartiles: list[float], n_digits: int) -> str:
    low, middle, high = (f"{value:,.{n_digits}f}" for value in quartiles)
    return middle if low == high else f"{middle} ({low}-{high})"
