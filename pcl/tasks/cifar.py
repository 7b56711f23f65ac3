"""The CIFAR-10H experiment: pairs by labels, kappa judged by crops and annotators. Only its settings are here yet."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn, final

from pcl.encoders.resnet import NO_IMAGES

N_FOLDS = 5
_FOLD_SIZE = 2_000  # images


class Labels(Enum):
    """Which images train, and by which P(C|x) their pairs are drawn."""

    SOFT = "soft"  # three folds of CIFAR-10H, the annotators' shares
    HARD = "hard"  # the same images, the most voted class
    CIFAR10_HARD = "cifar10_hard"  # the 50,000 training images of CIFAR-10


@final
class CifarTask:
    """Fold f trains on the sets f, f + 1 and f + 2, validates on f + 3 and tests on f + 4, modulo five."""

    @dataclass(frozen=True)
    class Config:
        """Settings of the task.

        Attributes:
            labels: Which images train, and by which labels.
            fold: Of the five.
            n_eval: Images that encoders are judged on, of the 2,000 for validation and as many for the test.
        """

        labels: Labels = Labels.SOFT
        fold: int = 0
        n_eval: int = _FOLD_SIZE

        def __post_init__(self) -> None:
            if not 0 <= self.fold < N_FOLDS:
                raise ValueError(f"`0 <= task.fold <= {N_FOLDS - 1}` must hold, but got {self.fold}.")
            if not 3 <= self.n_eval <= _FOLD_SIZE:
                raise ValueError(f"`3 <= task.n_eval <= {_FOLD_SIZE}` must hold, but got {self.n_eval}.")

        def build(self, seeds: Sequence[int]) -> NoReturn:
            """The task, in a later version."""
            raise ValueError(NO_IMAGES)
