"""Base of all encoders: a module from inputs to von Mises-Fisher posteriors, several runs side by side.

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
        """Return posteriors with batch (R, B) for inputs (R, B, ...); the state_dict has all that defines kappa."""

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
