"""The rounds of a seed: which study, which fault, when. A round does not depend on the rounds before it."""

import random
from dataclasses import dataclass
from typing import Any

from launch.testbed.small_network import SMALL

BASE = {
    **SMALL, "training.n_batches": 12, "training.eval_every": 2, "training.batch_size": 8, "task.n_eval": 64,
}  # fmt: skip
_SAMPLES, _PHASES = {"loss.n_samples": [2, 4]}, {"training.phases": ["mu kappa", "joint"]}
_LONGEST_PAUSE_S = 8.0


@dataclass(frozen=True)
class Kind:
    """A kind of study.

    Attributes:
        stages: The axes of each stage of its search space.
        options: Options of the command that starts a new study.
        resume_options: Options of both commands: the one that starts a study and the one that resumes it.
        is_for_ray: True if its results are the same on Ray, where several trials run at once.
    """

    stages: dict[str, dict[str, list[Any]]]
    options: tuple[str, ...] = ()
    resume_options: tuple[str, ...] = ()
    is_for_ray: bool = True

    def space(self) -> str:
        """Return the content of its space's file."""
        stages = "".join(f"Stage({name!r}, {axes!r})," for name, axes in self.stages.items())
        return (
            "from pcl.studies.space import SearchSpace, Stage\n"
            f"SPACE = SearchSpace('chaos', 'mc_info_nce', ({stages}), {BASE!r}, report_seeds=(4,))\n"
        )


KINDS = {
    "grid": Kind({"grid": {**_SAMPLES, **_PHASES}}),
    "seeds": Kind({"grid": _SAMPLES}, ("--seeds", "1,2"), ("--finalize",)),
    "stages": Kind({"first": _SAMPLES, "second": _PHASES}),
    "search": Kind({"grid": {**_SAMPLES, **_PHASES}}, ("--search", "optuna", "--trials", "3"), is_for_ray=False),
}

KILL, TERM, INTERRUPT, STOP = "KILL", "TERM", "INT", "STOP"  # signals
SECOND, LOCKED, FULL, DAMAGED, FAILING, CLOCK = (
    "second driver", "database locked", "disk full", "file damaged", "MLflow answers 500", "clock jumps",
)  # fmt: skip
DRIVER, WORKER, RAYLET, GCS, SERVER, GROUP = "driver", "trial worker", "raylet", "gcs_server", "MLflow server", "group"
_SIGNALS = (KILL, TERM, INTERRUPT, STOP)

# (Fault, target) -> weight of the draw: in this process, where a round takes seconds, and on Ray.
_INLINE: dict[tuple[str, str], int] = {
    (KILL, DRIVER): 8, (TERM, DRIVER): 3, (INTERRUPT, DRIVER): 3, (STOP, DRIVER): 2, (SECOND, DRIVER): 4,
    (LOCKED, "mlflow.db"): 3, (FULL, "storage"): 3, (DAMAGED, "study"): 10, (FAILING, SERVER): 3, (CLOCK, DRIVER): 3,
    **{(name, SERVER): 1 for name in _SIGNALS},
}  # fmt: skip
_ON_RAY: dict[tuple[str, str], int] = {
    **{(name, target): 1 for name in _SIGNALS for target in (DRIVER, WORKER, RAYLET, GCS)},
    **{(name, GROUP): 1 for name in (KILL, TERM, INTERRUPT)},
    (SECOND, DRIVER): 1,
}
RAY_EVERY = 8  # one round in so many is on Ray, on average


@dataclass(frozen=True)
class Round:
    """A study and the fault that it suffers.

    Attributes:
        seed: The seed that all rounds are drawn from.
        number: The round's number, from 1.
        kind: The kind of study, a key of `KINDS`.
        is_ray: True if its trials run on Ray, False if they run in the driver.
        is_resumed_on_ray: True if trials also run on Ray when the study is resumed.
        is_first: True if its storage is empty, False if it already has MLflow's database.
        fault: The fault.
        target: The process or file that the fault happens to.
        moment: The time of the fault, as a share of the time that the study usually takes.
        pause_s: The length of a fault that ends by itself.
        choice: A number from 0 to 1 that makes all other choices, such as which file is damaged.
    """

    seed: int
    number: int
    kind: str
    is_ray: bool
    is_resumed_on_ray: bool
    is_first: bool
    fault: str
    target: str
    moment: float
    pause_s: float
    choice: float

    @property
    def event(self) -> str:
        """Return the fault and its target in words."""
        if self.fault in _SIGNALS:
            return f"{self.fault} {self.target}"
        return self.fault

    @property
    def is_served(self) -> bool:
        """Return whether the study is recorded through an MLflow server."""
        return self.target == SERVER

    def __str__(self) -> str:
        where = "on Ray" if self.is_ray else "inline"
        return f"{self.event} at {self.moment:.0%} ({self.kind}, {where})"


def draw(seed: int, number: int) -> Round:
    """Draw a round."""
    chance = random.Random(f"{seed} {number}")
    is_ray = chance.random() < 1 / RAY_EVERY
    weights = _ON_RAY if is_ray else _INLINE
    ((fault, target),) = chance.choices(list(weights), list(weights.values()))
    kinds = [name for name, kind in KINDS.items() if kind.is_for_ray or not is_ray]
    return Round(
        seed, number, chance.choice(kinds), is_ray, is_resumed_on_ray=is_ray and chance.random() < 1 / 3,
        is_first=chance.random() < 1 / 5, fault=fault, target=target, moment=_moment(chance, fault),
        pause_s=chance.uniform(0.2, _LONGEST_PAUSE_S), choice=chance.random(),
    )  # fmt: skip


def _moment(chance: random.Random, fault: str) -> float:
    """Draw a moment from the first millisecond on; files may also be damaged after the end."""
    if fault != DAMAGED and chance.random() < 0.1:
        return chance.uniform(0.0, 0.02)
    return chance.uniform(0.0, 1.3 if fault == DAMAGED else 0.95)
