"""Times of the trials' checkpoints, observed from outside: a killed trial loses its training since the last."""

import contextlib
import statistics
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from pcl.studies.ledger.repeating import Repeating

_LOOK_S = 0.02


class Checkpoints(Repeating):
    """Thread that polls the trial folders of a study, which need not exist yet, for new checkpoints."""

    def __init__(self, study: Path) -> None:
        self._study = study
        self._times: dict[str, list[float]] = defaultdict(list)
        super().__init__(self.look, _LOOK_S, "checkpoints")

    def since_last(self, key: str, moment: float) -> float:
        """Return the seconds from a trial's last checkpoint to a moment, in seconds since 1970; NaN without one."""
        before = [saved for saved in self._times[key] if saved <= moment]
        return moment - before[-1] if before else float("nan")

    def intervals(self, until: float = float("inf")) -> list[float]:
        """Return the seconds between consecutive checkpoints of every trial, up to a moment."""
        known = [[saved for saved in times if saved <= until] for times in self._times.values()]
        return [after - before for times in known for before, after in pairwise(times)]

    def look(self) -> None:
        """Look at all trials once."""
        for file in self._study.glob("trials/*/checkpoint.pt"):
            with contextlib.suppress(FileNotFoundError):
                saved, times = file.stat().st_mtime, self._times[file.parent.name]
                if not times or times[-1] != saved:
                    times.append(saved)


def usual_and_longest(intervals: list[float]) -> tuple[float, float]:
    """Return the median and the longest interval; NaN if there is none."""
    return (statistics.median(intervals), max(intervals)) if intervals else (float("nan"), float("nan"))
