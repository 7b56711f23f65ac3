"""A user's own encoder: mu and kappa linear in the input, up to the norm."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from pcl.distributions import VonMisesFisher
from pcl.encoders import Encoder, EncoderConfig, Inputs


class Start(Enum):
    SMALL = "small"
    LARGE = "large"


class Linear(Encoder):
    @dataclass(frozen=True)
    class Config(EncoderConfig):
        dim: int = 10
        start: Start = Start.SMALL

        def build_for(self, inputs: Inputs, seeds: Sequence[int]) -> "Linear":
            return Linear(self, inputs.shape[0], seeds)

    def __init__(self, config: Config, dim_x: int, seeds: Sequence[int]) -> None:
        super().__init__()
        self.config = config
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        scale = 0.1 if config.start is Start.SMALL else 1.0
        drawn = [scale * torch.randn(2, dim_x, config.dim, generator=generator) for generator in generators]
        self.of_mu = nn.Parameter(torch.stack([weights[0] for weights in drawn]))
        self.of_kappa = nn.Parameter(torch.stack([weights[1, :, 0] for weights in drawn]))

    def forward(self, x: Tensor) -> VonMisesFisher:
        mu = normalize(x @ self.of_mu - 0.5, dim=-1)
        kappa = 16 + softplus((x * self.of_kappa.unsqueeze(1)).sum(-1))
        return VonMisesFisher(mu, kappa, validate_args=False)

    def mu_parameters(self) -> Iterator[nn.Parameter]:
        return iter([self.of_mu])

    def kappa_parameters(self) -> Iterator[nn.Parameter]:
        return iter([self.of_kappa])

    def run_state(self, run: int) -> dict[str, Tensor]:
        return {name: value[run].clone() for name, value in self.state_dict().items()}

    def load_run_state(self, run: int, state: dict[str, Tensor]) -> None:
        for name, value in self.state_dict().items():
            value[run].copy_(state[name])
