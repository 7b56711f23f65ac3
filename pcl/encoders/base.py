"""What every encoder is: a module from inputs to von Mises-Fisher posteriors, several runs side by side.

Axes: R runs, B inputs, D dim.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from torch import Tensor, nn

from pcl.distributions import VonMisesFisher


class Encoder(nn.Module, ABC):
    """R independent encoders of one architecture, computed together."""

    __call__: Callable[..., VonMisesFisher]

    @abstractmethod
    def forward(self, x: Tensor) -> VonMisesFisher:
        """Posteriors with batch (R, B) of inputs (R, B, ...); everything that defines kappa is in the state_dict."""

    @abstractmethod
    def mu_parameters(self) -> Iterator[nn.Parameter]:
        """What a phase that trains mu trains."""

    @abstractmethod
    def kappa_parameters(self) -> Iterator[nn.Parameter]:
        """What a phase that trains kappa trains."""

    @abstractmethod
    def run_state(self, run: int) -> dict[str, Tensor]:
        """A copy of one run's part of the state."""

    @abstractmethod
    def load_run_state(self, run: int, state: dict[str, Tensor]) -> None:
        """Put one run's part back."""
