"""Verdict on a round: what its study lost, doubled or got wrong, what hung, and what was left behind."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from launch.benchmarks import Row
from pcl.presentation.text_tables import aligned

if TYPE_CHECKING:
    from launch.benchmarks.chaos.drawing import Round

Reports = Mapping[str, Sequence[Mapping[str, Any]]]  # trial's key -> report: its batch, and its metrics by seed
HARMS = ("lost", "doubled", "wrong", "hung", "left_over")


@dataclass(frozen=True)
class Findings:
    """A study's final state.

    Attributes:
        reports: Every report of every trial, without metrics that depend on the clock.
        best: Key of the winner; empty without one.
        encoders: A digest of each trial's last checkpoint, without timings.
        n_doubled: Number of runs and reports that MLflow has twice, or that the folders lack.
        n_missing: Number of those that MLflow lacks.
    """

    reports: Reports
    best: str
    encoders: Mapping[str, str]
    n_doubled: int
    n_missing: int


@dataclass
class Verdict:
    """Sentences about what went wrong in a round, by kind of harm; a sound round has none."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Return whether nothing went wrong."""
        return not any(asdict(self).values())

    def __str__(self) -> str:
        told = [f"{name.replace('_', ' ')}: {'; '.join(texts)}" for name, texts in asdict(self).items() if texts]
        return " | ".join(told) or "sound"

    def compare(self, found: Findings, expected: Findings) -> None:
        """Note how a study differs from an undisturbed one."""
        for key in expected.reports.keys() - found.reports.keys():
            self.lost.append(f"trial {key}")
        for key in found.reports.keys() - expected.reports.keys():
            self.wrong.append(f"trial {key} is not in an undisturbed study")
        for key in expected.reports.keys() & found.reports.keys():
            self._compare_trial(key, found, expected)
        if found.best != expected.best:
            self.wrong.append(f"the winner is {found.best or 'none'}, not {expected.best}")
        if found.n_missing:
            self.lost.append(f"{found.n_missing} runs or reports in MLflow")
        if found.n_doubled:
            self.doubled.append(f"{found.n_doubled} runs or reports in MLflow")

    def _compare_trial(self, key: str, found: Findings, expected: Findings) -> None:
        ours, theirs = (Counter(row["batch"] for row in some.reports[key]) for some in (found, expected))
        if theirs - ours:
            self.lost.append(f"reports of trial {key}, such as of batch {min(theirs - ours)}")
        if ours - theirs:
            self.doubled.append(f"reports of trial {key}, such as of batch {min(ours - theirs)}")
        if ours == theirs and repr(found.reports[key]) != repr(expected.reports[key]):  # NaN equals NaN here
            self.wrong.append(f"other numbers of trial {key}")
        if found.encoders.get(key) != expected.encoders.get(key):
            self.wrong.append(f"another encoder of trial {key}")


def rows_of(judged: Iterable[tuple["Round", Verdict]]) -> list[Row]:
    """Return the table: per event, the number of rounds and, for each kind of harm, of those that suffered it."""
    rows: dict[str, Row] = {}
    for each, verdict in judged:
        empty: Row = {"event": each.event, "rounds": 0, "on_ray": 0, **dict.fromkeys(HARMS, 0), "failures": []}
        row = rows.setdefault(each.event, {"seed": each.seed, **empty})
        row["rounds"] += 1
        row["on_ray"] += each.is_ray
        for harm in HARMS:
            row[harm] += bool(getattr(verdict, harm))
        if not verdict.is_sound:
            row["failures"].append({"round": each.number, "what": str(each), "verdict": asdict(verdict)})
    return [rows[event] for event in sorted(rows)]


def is_harmed(row: Row) -> bool:
    """Return whether a round of this row was not sound."""
    return any(row[harm] for harm in HARMS)


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of the table, with totals."""
    names = ["rounds", "on_ray", *HARMS]
    total = {name: sum(row[name] for row in rows) for name in names}
    lines = [[row["event"], *(str(row[name]) for name in names)] for row in [*rows, {"event": "all", **total}]]
    return aligned([["fault", *(name.replace("_", " ") for name in names)], *lines])
