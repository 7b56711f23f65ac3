"""Base of all encoders: a module from inputs to von Mises-Fisher posteriors, several runs side by side.

Axes: R runs, B inputs, D dim.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NamedTuple, Self

from torch import Tensor, nn

from pcl.distributions import EXACT_LAW, CosineLaw, VonMisesFisher


class Inputs(NamedTuple):
    """A description of a task's inputs, for encoders."""

    shape: tuple[int, ...]  # of one input
    kappa_range: tuple[float, float] | None = None  # of the true kappa; None if it is unknown or infinite


class EncoderConfig(ABC):
    """Settings of an encoder: the base of a frozen dataclass `Config` inside it, whose fields are plain or enums."""

    dim: int  # dimension D of the latent space; a field of every `Config`

    @abstractmethod
    def build_for(self, inputs: Inputs, seeds: Sequence[int]) -> "Encoder":
        """Return the encoders of these seeds, on the CPU."""

    def check(self, inputs: Inputs) -> None:  # noqa: B027  many take all
        """Raise a ValueError unless the encoder takes such inputs."""

    def without_weights(self) -> Self:
        """Return the same settings without pretrained weights, for an encoder whose state is loaded next."""
        return self

    def n_weights(self, inputs: Inputs) -> float:
        """Return the approximate number of weights in one run's networks; 0 if unknown."""
        return 0.0

    @property
    def pretrained_width(self) -> int | None:
        """Width of the pretrained backbone that `encoder.weights` names; None if there is no such setting."""
        return None

    @property
    def law(self) -> CosineLaw:
        """Law of samples from the posteriors."""
        return EXACT_LAW


class Encoder(nn.Module, ABC):
    """R independent encoders of one architecture, computed together.

    An encoder has its settings in a class `Config`, see `EncoderConfig`.
    """

    Config: ClassVar[type[EncoderConfig]]
    __call__: Callable[..., VonMisesFisher]

    @abstractmethod
    def forward(self, x: Tensor) -> VonMisesFisher:
        """Return posteriors with batch (R, B) for inputs (R, B, ...); the state_dict holds all that defines kappa."""

    def training_posteriors(self, x: Tensor, trains_mu: bool, trains_kappa: bool) -> VonMisesFisher:
        """Return the posteriors of inputs (R, B, ...) that a phase trains on; by default those of `forward`."""
        return self(x)

    def begin(self, probes: Tensor) -> None:
        """Prepare for training with probe inputs (R, n, ...); n may be 0."""

    @abstractmethod
    def mu_parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters that a mu phase trains."""

    @abstractmethod
    def kappa_parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters that a kappa phase trains."""

    @abstractmethod
    def run_state(self, run: int) -> dict[str, Tensor]:
        """Return a copy of one run's part of the state."""

    @abstractmethod
    def load_run_state(self, run: int, state: dict[str, Tensor]) -> None:
        """Load one run's part of the state."""
