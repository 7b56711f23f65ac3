"""The controlled experiment's encoder: one multi-layer perceptron for mu, one for kappa.

Axes: R runs, B inputs, D dim.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, normalize, softplus

from pcl.distributions import CosineLaw, Sampler, SamplerGradient, VonMisesFisher
from pcl.encoders.base import Encoder, EncoderConfig, Inputs
from pcl.mathematics.random_streams import streams

# Rows of one matrix product may be summed in different orders, depending on their position and the processor: outputs
# of equal inputs then differ by a few units in the last place of the terms, which are at most of order 1, as weights
# start within +-1/sqrt(inputs). Observed: one unit.
_ROUNDING_UNITS = 4
_SIXTEEN_TO_32 = (16.0, 32.0)
_SMALLEST_RANGE = 1e-6  # smaller ranges, if above rounding, get the scale of this one


class Hidden(Enum):
    """The hidden layers of both networks."""

    DEEP = "deep"  # widths 10, 50, 50, 50, 50, 50 and 10, as in the paper
    # Widths 20 and 20: its modes are spread from the start, whereas those of the deep one start in one place and need
    # thousands of batches to leave it.
    SHALLOW = "shallow"

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of the layers, to be multiplied by D for mu and as `KappaWidth` says for kappa."""
        return (10, 50, 50, 50, 50, 50, 10) if self is Hidden.DEEP else (20, 20)


class KappaLink(Enum):
    """The map from a network's output y to kappa; scale and shift are fixed before training, see `KappaHead`."""

    ONE_PLUS_EXP = "one_plus_exp"  # 1 + exp(scale y + shift), as the paper writes it
    SCALED_SOFTPLUS = "scaled_softplus"  # exp(scale softplus(y) + shift), as the released code computes it


class KappaWidth(Enum):
    """Widths of the kappa network's hidden layers."""

    AS_MU = "as_mu"  # times D, as the paper writes it: 1.1 million parameters at D = 10
    NARROW = "narrow"  # times 1, as the released code computes it: 11 thousand


class Backbone(Enum):
    """The input of the kappa network, whose range is set over inputs x in either case."""

    INDEPENDENT = "independent"  # x
    # mu(x), whose training moves kappa. As in the release, the range is set over x fed into the same network, which
    # must take both: over the modes, which start in one place, the scale would be so large that kappa runs away.
    SHARED = "shared"

    def kappa_input(self, x: Tensor, mu: Tensor) -> Tensor:
        """Return the input of the kappa network."""
        return x if self is Backbone.INDEPENDENT else mu

    def check(self, part: str, dim_x: int, dim: int) -> None:
        """Raise a ValueError unless the kappa network of a part, `task` or `encoder`, takes both inputs and modes."""
        if self is Backbone.SHARED and dim_x != dim:
            raise ValueError(
                f"`{part}.backbone=shared` needs inputs and latents of one dimension, but got {dim_x} and {dim}: "
                "kappa's range is set over inputs fed into the network that takes mu."
            )


class KappaRange(Enum):
    """The range that kappa-hat spans before training."""

    GENERATOR = "generator"  # that of the truth, as the paper writes it; 16 to 32 if the truth is infinite
    SIXTEEN_TO_32 = "sixteen_to_32"  # always, as in the released scripts

    def of(self, inputs: Inputs) -> tuple[float, float]:
        """Return the range in numbers."""
        return inputs.kappa_range if self is KappaRange.GENERATOR and inputs.kappa_range else _SIXTEEN_TO_32


class StackedMlp(nn.Module):
    """R multi-layer perceptrons with leaky ReLU, as one batched product per layer; `sizes` starts with the input.

    Weights and biases come from one generator per run, uniform in +-1/sqrt(inputs) as in torch's linear layers.
    """

    def __init__(self, sizes: Sequence[int], generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for n_in, n_out in pairwise(sizes):
            bound = 1 / math.sqrt(n_in)
            for parameters, shape in ((self.weights, (n_in, n_out)), (self.biases, (1, n_out))):
                drawn = [torch.rand(shape, generator=generator) for generator in generators]
                parameters.append(nn.Parameter((2 * torch.stack(drawn) - 1) * bound))

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs (R, B, n_in) to outputs (R, B, n_out)."""
        last = len(self.weights) - 1
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = stacked_linear(x, weight, bias)
            if i < last:
                x = leaky_relu(x)
        return x


def flattened(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Move parameters into one buffer and return it; the parameters become views of it."""
    flat = torch.cat([parameter.detach().flatten() for parameter in parameters])
    for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
        parameter.data = part.view(parameter.shape)
    return flat


def stacked_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return X W + b of every run: (R, B, n_in), (R, n_in, n_out), (R, 1, n_out)."""
    if len(weight) > 1:
        return torch.baddbmm(bias, x, weight)
    # For a single run, the product has the bias fused. Views, not entries: the gradient of an entry would be a copy.
    return torch.addmm(bias.flatten(), x.squeeze(0), weight.squeeze(0)).unsqueeze(0)


class KappaHead(nn.Module):
    """The map from a network's output to kappa, with a scale and shift per run that are part of the state."""

    scale: Tensor
    shift: Tensor

    def __init__(self, link: KappaLink, n_runs: int) -> None:
        super().__init__()
        self.link = link
        self.register_buffer("scale", torch.ones(n_runs, 1))
        self.register_buffer("shift", torch.zeros(n_runs, 1))

    def forward(self, y: Tensor) -> Tensor:
        """Return kappa, (R, B), for outputs (R, B, 1)."""
        exponent = torch.addcmul(self.shift, self.scale, self._feature(y))
        return 1 + exponent.exp() if self.link is KappaLink.ONE_PLUS_EXP else exponent.exp()

    @torch.no_grad()
    def span(self, y: Tensor, kappa_min: float, kappa_max: float) -> None:
        """Set scale and shift so that kappa spans kappa_min to kappa_max over these outputs, (R, B, 1).

        Outputs that are equal up to rounding, as for modes in one place, have no range to be scaled: the scale is then
        1, and kappa is kappa_max for all of them.
        """
        offset = 1.0 if self.link is KappaLink.ONE_PLUS_EXP else 0.0
        if not offset < kappa_min < kappa_max < math.inf:
            raise ValueError(
                f"`{offset:g} < kappa_min < kappa_max < inf` must hold for the link {self.link.value}, "
                f"but got {kappa_min:g} and {kappa_max:g}."
            )
        low, high = math.log(kappa_min - offset), math.log(kappa_max - offset)
        feature = self._feature(y)
        lowest, highest = feature.amin(1, keepdim=True), feature.amax(1, keepdim=True)
        spread = highest - lowest
        largest = torch.maximum(lowest.abs(), highest.abs()).clamp(min=1)
        is_range = spread > _ROUNDING_UNITS * torch.finfo(feature.dtype).eps * largest
        self.scale.copy_(torch.where(is_range, (high - low) / spread.clamp(min=_SMALLEST_RANGE), 1.0))
        self.shift.copy_(high - self.scale * highest)

    def _feature(self, y: Tensor) -> Tensor:
        return softplus(y.squeeze(-1)) if self.link is KappaLink.SCALED_SOFTPLUS else y.squeeze(-1)


class MlpEncoder(Encoder):
    """mu from a perceptron with the widths of `Hidden` times D, normalised; kappa from another with one output."""

    @dataclass(frozen=True)
    class Config(EncoderConfig):
        """Settings of the encoder."""

        dim: int = 10  # dimension D of the latent space
        hidden: Hidden = Hidden.DEEP  # hidden layers of both networks
        kappa_link: KappaLink = KappaLink.ONE_PLUS_EXP  # map from the kappa network's output to kappa
        kappa_width: KappaWidth = KappaWidth.AS_MU  # widths of the kappa network
        kappa_range: KappaRange = KappaRange.GENERATOR  # range of kappa-hat before training
        backbone: Backbone = Backbone.INDEPENDENT  # input of the kappa network
        sampler: Sampler = Sampler.EXACT  # law of samples from the posteriors
        sampler_gradient: SamplerGradient = SamplerGradient.EXACT  # gradient of these samples in kappa

        def __post_init__(self) -> None:
            if self.dim < 2:
                raise ValueError(f"`encoder.dim >= 2` must hold, but got {self.dim}.")

        def build_for(self, inputs: Inputs, seeds: Sequence[int]) -> "MlpEncoder":
            return MlpEncoder(self, inputs.shape[0], seeds, self.kappa_range.of(inputs))

        def check(self, inputs: Inputs) -> None:
            if len(inputs.shape) != 1:
                raise ValueError(f"The encoder `MlpEncoder` takes vectors, but the task's inputs are {inputs.shape}.")
            self.backbone.check("encoder", inputs.shape[0], self.dim)

        def n_weights(self, inputs: Inputs) -> float:
            sizes = [*inputs.shape, *(width * self.dim for width in self.hidden.widths), self.dim]
            n_wide = 2 if self.kappa_width is KappaWidth.AS_MU else 1
            return float(n_wide * sum(n_in * n_out for n_in, n_out in pairwise(sizes)))

        @property
        def law(self) -> CosineLaw:
            return CosineLaw(self.sampler, self.sampler_gradient)

    def __init__(
        self, config: Config, dim_x: int, seeds: Sequence[int], first_kappa_range: tuple[float, float] = _SIXTEEN_TO_32
    ) -> None:
        super().__init__()
        self.config = config
        self.law = config.law
        self.first_kappa_range = first_kappa_range
        dim = config.dim
        kappa_unit = dim if config.kappa_width is KappaWidth.AS_MU else 1
        kappa_in = dim_x if config.backbone is Backbone.INDEPENDENT else dim
        widths = config.hidden.widths
        self.mu_net = StackedMlp([dim_x, *(width * dim for width in widths), dim], streams(seeds, "encoder/mu"))
        kappa_sizes = [kappa_in, *(width * kappa_unit for width in widths), 1]
        self.kappa_net = StackedMlp(kappa_sizes, streams(seeds, "encoder/kappa"))
        self.kappa_head = KappaHead(config.kappa_link, len(seeds))

    def forward(self, x: Tensor) -> VonMisesFisher:
        mu = self.mu(x)
        return VonMisesFisher(mu, self.kappa(x, mu), validate_args=False, law=self.law)

    @torch.no_grad()
    def begin(self, probes: Tensor) -> None:
        """Set kappa to its first range over these inputs, fed into the kappa network."""
        self.kappa_head.span(self.kappa_net(probes), *self.first_kappa_range)

    def mu(self, x: Tensor) -> Tensor:
        """Return the modes, (R, B, D)."""
        return normalize(self.mu_net(x), dim=-1)

    def kappa(self, x: Tensor, mu: Tensor) -> Tensor:
        """Return the concentrations, (R, B)."""
        kappa: Tensor = self.kappa_head(self.kappa_net(self.kappa_input(x, mu)))
        return kappa

    def mu_parameters(self) -> Iterator[nn.Parameter]:
        return self.mu_net.parameters()

    def kappa_parameters(self) -> Iterator[nn.Parameter]:
        return self.kappa_net.parameters()

    def kappa_input(self, x: Tensor, mu: Tensor) -> Tensor:
        """Return the input of the kappa network."""
        return self.config.backbone.kappa_input(x, mu)

    def run_state(self, run: int) -> dict[str, Tensor]:
        return {name: value[run].clone() for name, value in self.state_dict().items()}

    def load_run_state(self, run: int, state: dict[str, Tensor]) -> None:
        for name, value in self.state_dict().items():
            value[run].copy_(state[name])
