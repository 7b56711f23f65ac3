"""Phases and learning rates of training as data.

A phase trains mu, kappa or both for a share of the batches. Text form: "mu kappa" or, with shares, "mu:3 kappa:1".
"""

import math
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate, pairwise

from pcl.tasks.base import ADDED_LATER, Negatives


class Trained(Enum):
    """The parameters that a phase trains."""

    MU = "mu"
    KAPPA = "kappa"
    JOINT = "joint"


class Optimizer(Enum):
    """The optimiser of training."""

    ADAM = "adam"
    ADAMW = "adamw"  # with a weight decay of 0.01, torch's default, as in the released image scripts


class ReleaseVersion(Enum):
    """The version of the release that training follows where versions differ; see `fidelity.release_settings`."""

    FIRST = "first"  # lr_decay 0.1 and Adam, as the paper writes it; more likely the one behind the published tables
    LAST = "last"  # lr_decay 0.5 and, for images, AdamW


class LrSchedule(Enum):
    """The schedule of the learning rate; all but the last two decay it by factors of `lr_decay`."""

    QUARTERS = "quarters"  # at each 25% of training, as the paper writes it
    # At the middle of every phase; phase i starts at lr lr_decay^(i/2), as the released code computes it.
    PHASES = "phases"
    # At the start of every phase after the first; a single phase has its only step at its middle. As the released code
    # computes it for images.
    PHASE_STARTS = "phase_starts"
    # Linear warm-up over the first 5% of training, then a cosine to 0: the paper's for training from scratch.
    WARM_UP_COSINE = "warm_up_cosine"
    # The same, restarted in every phase, with a warm-up over its first 20%: the released code's from scratch.
    PHASE_WARM_UP_COSINE = "phase_warm_up_cosine"


class Keep(Enum):
    """The evaluation that a run ends with, where its task can tell which is best (`Task.selects`)."""

    BEST = "best"  # the best on validation images, as in the released code
    LAST = "last"  # with the weights of the last batch


_WARM_UP, _PHASE_WARM_UP = 0.05, 0.2  # shares of training, and of a phase
_LARGEST_SHARE = 1e100  # of a phase, so that its product with a number of batches is finite
_N_SLICES = 512  # number of changes of the rate; batches between them can be trained in one call


@dataclass(frozen=True)
class Phase:
    """Part of a training run."""

    trained: Trained  # the parameters that it trains
    share: float = 1.0  # its length relative to other phases

    def __post_init__(self) -> None:
        if not 0 < self.share <= _LARGEST_SHARE:
            raise ValueError(f"A phase's share must be a positive number up to 1e100, but got {self.share:g}.")


class Phases(tuple[Phase, ...]):
    """A sequence of phases."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Phases":
        """Parse the text form."""
        names = [trained.value for trained in Trained]
        phases = []
        for word in text.replace(",", " ").split():
            name, _, share = word.partition(":")
            if name not in names:
                raise ValueError(f"A phase must be one of {', '.join(names)}, but got {name!r}.")
            try:
                phases.append(Phase(Trained(name), float(share) if share else 1.0))
            except ValueError:
                raise ValueError(f"A phase's share must be a positive number up to 1e100, but got {word!r}.") from None
        if not phases:
            raise ValueError("At least one phase must be given, for example 'mu kappa' or 'joint'.")
        return cls(phases)

    def __str__(self) -> str:
        return " ".join(p.trained.value + (f":{p.share:.17g}" if p.share != 1 else "") for p in self)

    def ends(self, n_batches: int) -> list[int]:
        """Return the index after the last batch of each phase."""
        total = sum(phase.share for phase in self)
        return [round(n_batches * done / total) for done in accumulate(phase.share for phase in self)]


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of training."""

    n_batches: int = 100_000
    batch_size: int = 512  # number B of anchors in a batch
    negatives: Negatives = Negatives.DRAWN  # source of negatives, except in mu phases
    n_negatives: int = 32  # number of negatives; always one if they are in-batch
    mu_phase_negatives: Negatives = Negatives.IN_BATCH  # source of negatives in phases that train mu alone
    phases: Phases = Phases((Phase(Trained.MU), Phase(Trained.KAPPA)))  # noqa: RUF009  a tuple, immutable
    release_version: ReleaseVersion = ReleaseVersion.FIRST  # in a `RunConfig`, it also sets lr_decay and optimizer
    optimizer: Optimizer = Optimizer.ADAM
    lr: float = 1e-4  # initial learning rate; with a warm-up, the highest
    lr_decay: float = 0.1  # factor by which it decays
    lr_schedule: LrSchedule = LrSchedule.QUARTERS
    eval_every: int = 5_000  # batches between evaluations
    # A run whose median kappa-hat exceeds this ends as runaway; with inf, every run trains to its end.
    kappa_limit: float = 1e6
    keep: Keep = field(default=Keep.BEST, metadata=ADDED_LATER)  # evaluation, with its weights, that a run ends with

    def __post_init__(self) -> None:
        for name, least in (("n_batches", 1), ("batch_size", 2), ("n_negatives", 1), ("eval_every", 1)):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"`training.{name} >= {least}` must hold, but got {value}.")
        for name in ("lr", "lr_decay"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"`0 < training.{name} < inf` must hold, but got {value:g}.")
        if not self.kappa_limit > 0:
            raise ValueError(f"`0 < training.kappa_limit` must hold, but got {self.kappa_limit:g}.")

    def phase_at(self, batch: int) -> int:
        """Return the index of the phase that a batch belongs to."""
        ends = self.phases.ends(self.n_batches)
        return next((i for i, end in enumerate(ends) if batch < end), len(ends) - 1)

    def lr_at(self, batch: int) -> float:
        """Return the learning rate of a batch."""
        if self.lr_schedule is LrSchedule.QUARTERS:
            return float(self.lr * self.lr_decay ** (4 * batch // self.n_batches))
        if self.lr_schedule is LrSchedule.WARM_UP_COSINE:
            return self.lr * warm_up_cosine((_N_SLICES * batch // self.n_batches + 0.5) / _N_SLICES, _WARM_UP)
        phase = self.phase_at(batch)
        ends = [0, *self.phases.ends(self.n_batches)]
        if self.lr_schedule is LrSchedule.PHASE_WARM_UP_COSINE:
            done, length = batch - ends[phase], ends[phase + 1] - ends[phase]
            return self.lr * warm_up_cosine((_N_SLICES * done // length + 0.5) / _N_SLICES, _PHASE_WARM_UP)
        is_second_half = 2 * batch >= ends[phase] + ends[phase + 1]
        if self.lr_schedule is LrSchedule.PHASE_STARTS and len(self.phases) > 1:
            return float(self.lr * self.lr_decay**phase)
        return float(self.lr * self.lr_decay ** (phase / 2 + is_second_half))

    def negatives_at(self, phase: int) -> Negatives:
        """Return the source of negatives in a phase."""
        return self.mu_phase_negatives if self.phases[phase].trained is Trained.MU else self.negatives

    def next_stop(self, batch: int) -> int:
        """Return the first batch after this one at which something changes: an evaluation, the phase or the rate."""
        stops = {self.n_batches, (batch // self.eval_every + 1) * self.eval_every, *self.phases.ends(self.n_batches)}
        if self.lr_schedule is LrSchedule.QUARTERS:
            stops |= {-(-self.n_batches * i // 4) for i in range(1, 5)}
        elif self.lr_schedule is LrSchedule.WARM_UP_COSINE:
            stops.add(-(-self.n_batches * (_N_SLICES * batch // self.n_batches + 1) // _N_SLICES))
        elif self.lr_schedule is LrSchedule.PHASE_WARM_UP_COSINE:
            begin, end = [0, *self.phases.ends(self.n_batches)][(phase := self.phase_at(batch)) : phase + 2]
            stops.add(begin - (begin - end) * (_N_SLICES * (batch - begin) // (end - begin) + 1) // _N_SLICES)
        else:
            ends = [0, *self.phases.ends(self.n_batches)]
            stops |= {-(-(a + b) // 2) for a, b in pairwise(ends)}
        return min(stop for stop in stops if stop > batch)


def warm_up_cosine(done: float, warm_up: float) -> float:
    """Return the share of the highest rate at a share `done` of training: done / warm_up, then (1 + cos(pi t)) / 2."""
    if done < warm_up:
        return done / warm_up
    return (1 + math.cos(math.pi * (done - warm_up) / (1 - warm_up))) / 2
