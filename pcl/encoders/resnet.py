"""The image experiments' encoder: a ResNet-18 whose output has direction mu and length kappa.

Small images have a first layer of their own; from 49 pixels on, the network is torchvision's for photographs.

Axes: R runs, B images, D dim, S pixels of a side.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Self, final

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pcl.data.weights import Weights, is_weights_name, load_weights, named_weights, plain_state
from pcl.distributions import CosineLaw, Sampler, SamplerGradient, VonMisesFisher
from pcl.encoders.base import Encoder, EncoderConfig, Inputs
from pcl.encoders.batch_norm import CountedBatchNorm2d, Counts, counting
from pcl.encoders.blocks import ActivatedNorm, Block, Pool
from pcl.encoders.stem import SMALL, Stem
from pcl.mathematics.random_streams import mixed_seed

_BLOCKS = (1, 2, 4, 8)  # widths of the four stages, of two blocks each, as multiples of the first
N_FEATURES = _BLOCKS[-1]  # number of the backbone's last features, as a multiple of the first width
_RESNET_18 = 11e6  # weights at a width of 64; most of their number grows with the square of the width


class Head(Enum):
    """The last layer."""

    LINEAR = "linear"  # with a bias, as the paper writes it
    WEIGHT_NORMED = "weight_normed"  # without a bias, direction and length of each row apart, as in the released code


class KappaPhase(Enum):
    """The part that a kappa phase does not train if one network has mu and kappa."""

    MU_FIXED = "mu_fixed"  # no gradient passes through mu, as the paper writes it
    EVERYTHING = "everything"  # no part: all of the network trains, as in the released code


class Precision(Enum):
    """Precision of the products in the network's body on a CUDA device; the last layer, mu and kappa are float32."""

    BFLOAT16 = "bfloat16"  # a CPU still computes in float32
    FLOAT32 = "float32"


@final
class ResNetEncoder(Encoder):
    """mu = e / ||e|| and kappa = ||e|| of an embedding e, linear in the last features; one network per seed."""

    @dataclass(frozen=True)
    class Config(EncoderConfig):
        """Settings of the encoder."""

        dim: int = 8  # dimension D of the latent space
        width: int = 64  # channels of the first stage; 64 makes a ResNet-18
        # File of a pretrained backbone, whose name has a hash of its content, in `weights_folder` or by path.
        weights: str = ""
        head: Head = Head.LINEAR  # the last layer
        # Gain of the last layer's Xavier initialisation, hence the scale of kappa-hat before training; kappa_pos of the
        # images task, as in the released scripts.
        head_gain: float = 16.0
        kappa_phase: KappaPhase = KappaPhase.MU_FIXED  # part that kappa phases do not train
        precision: Precision = Precision.BFLOAT16  # precision of the network's body
        sampler: Sampler = Sampler.EXACT  # law of samples from the posteriors
        sampler_gradient: SamplerGradient = SamplerGradient.EXACT  # gradient of these samples in kappa

        def __post_init__(self) -> None:
            if self.dim < 2:
                raise ValueError(f"`encoder.dim >= 2` must hold, but got {self.dim}.")
            if self.width < 1:
                raise ValueError(f"`encoder.width >= 1` must hold, but got {self.width}.")
            check_weights_name(self.weights)
            if not 0 < self.head_gain < math.inf:
                raise ValueError(f"`0 < encoder.head_gain < inf` must hold, but got {self.head_gain:g}.")

        def build_for(self, inputs: Inputs, seeds: Sequence[int]) -> "ResNetEncoder":
            return ResNetEncoder(self, seeds, Stem.of(inputs.shape[-1]))

        def check(self, inputs: Inputs) -> None:
            check_images("ResNetEncoder", inputs)

        def without_weights(self) -> Self:
            return replace(self, weights="")

        def n_weights(self, inputs: Inputs) -> float:
            return float(_RESNET_18 * (self.width / 64) ** 2)

        @property
        def pretrained_width(self) -> int | None:
            return self.width

        @property
        def law(self) -> CosineLaw:
            return CosineLaw(self.sampler, self.sampler_gradient)

    mean: Tensor
    deviation: Tensor

    def __init__(self, config: Config, seeds: Sequence[int], stem: Stem = SMALL) -> None:
        super().__init__()
        self.config = config
        self.law = config.law
        self.nets = nn.ModuleList(_network(config, stem, mixed_seed(seed, "encoder/resnet")) for seed in seeds)
        if config.weights:
            load_backbone(self.nets, named_weights(config.weights), config.width, stem)
        mean, deviation = stem.byte_statistics()
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("deviation", deviation, persistent=False)

    def forward(self, x: Tensor) -> VonMisesFisher:
        """Return posteriors with batch (R, B) for images (R, B, 3, S, S), bytes or numbers from 0 to 255."""
        embedding = torch.stack([self._embedding(net, images) for net, images in zip(self.nets, x, strict=True)])
        kappa = embedding.norm(dim=-1)
        return VonMisesFisher(normalize(embedding, dim=-1), kappa, validate_args=False, law=self.law)

    def training_posteriors(self, x: Tensor, trains_mu: bool, trains_kappa: bool) -> VonMisesFisher:
        """Return posteriors whose gradient only passes through what a phase trains, as one network has mu and kappa."""
        posterior = self(x)
        is_mu_fixed = self.config.kappa_phase is KappaPhase.MU_FIXED and not trains_mu
        mu = posterior.mu.detach() if is_mu_fixed else posterior.mu
        kappa = posterior.kappa if trains_kappa else posterior.kappa.detach()
        return VonMisesFisher(mu, kappa, validate_args=False, law=posterior.law)

    @contextlib.contextmanager
    def counting(self, counts: Tensor, total: int) -> Iterator[None]:
        """Count images in this context: in training, run r has image i counts[r, i] times, and `total` copies in all.

        The encoder returns each image's posterior once; batch norm uses the statistics of all copies.
        """
        with contextlib.ExitStack() as stack:
            for net, shares in zip(self.nets, (counts / total).unsqueeze(-1), strict=True):
                layers = [layer for layer in net.modules() if isinstance(layer, CountedBatchNorm2d)]
                stack.enter_context(counting(layers, Counts(shares, total)))
            yield

    def _embedding(self, net: nn.Module, images: Tensor) -> Tensor:
        assert isinstance(net, nn.Sequential)
        body, head = net
        is_half = images.is_cuda and self.config.precision is Precision.BFLOAT16
        with torch.autocast(images.device.type, torch.bfloat16, enabled=is_half, cache_enabled=False):
            features = body((images - self.mean) / self.deviation)
        embedding: Tensor = head(features.float())
        return embedding

    def run_state(self, run: int) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.nets[run].state_dict().items()}

    def load_run_state(self, run: int, state: dict[str, Tensor]) -> None:
        self.nets[run].load_state_dict(state)

    def mu_parameters(self) -> Iterator[nn.Parameter]:
        """Return all parameters: one network has mu and kappa."""
        return self.parameters()

    kappa_parameters = mu_parameters


def backbone(width: int, stem: Stem = SMALL) -> nn.Sequential:
    """Return a ResNet-18 up to its last features, (B, 3, S, S) -> (B, 8 width), with the first layer of `stem`.

    The network for small images keeps the pooling after that layer, like the pretrained one that the paper cites.
    """
    first_layer = nn.Conv2d(3, width, stem.kernel, stem.stride, padding=stem.kernel // 2, bias=False)
    # Places name the weights in files: the second once was a ReLU, which the norm before it has now.
    layers: list[nn.Module] = [first_layer, ActivatedNorm(width), nn.Identity(), Pool(3, stride=2, padding=1)]
    n_in = width
    for stage, factor in enumerate(_BLOCKS):
        n_out = factor * width
        layers += [Block(n_in, n_out, stride=2 if stage else 1), Block(n_out, n_out)]
        n_in = n_out
    for layer in layers:
        for module in layer.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    whole = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    if width % 8 == 0:  # halves the time on a CPU at width 8; narrower layers become slower
        whole = whole.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return whole


def classifier(width: int, stem: Stem, n_classes: int, seed: int) -> nn.Sequential:
    """Return a backbone with a linear classification layer on top."""
    with torch.random.fork_rng(devices=[]):  # torch's layers draw from the global generator
        torch.manual_seed(seed)
        return nn.Sequential(backbone(width, stem), nn.Linear(N_FEATURES * width, n_classes))


def _network(config: ResNetEncoder.Config, stem: Stem, seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):  # torch's layers draw from the global generator
        torch.manual_seed(seed)
        body = backbone(config.width, stem)
        head = nn.Linear(N_FEATURES * config.width, config.dim, bias=config.head is Head.LINEAR)
        torch.manual_seed(seed)  # both kinds of heads start from the same weights
        nn.init.xavier_uniform_(head.weight, gain=config.head_gain)
    if config.head is Head.WEIGHT_NORMED:
        head = nn.utils.parametrizations.weight_norm(head)
    return nn.Sequential(body, head)


def check_images(encoder: str, inputs: Inputs) -> None:
    """Raise a ValueError unless inputs are square images of three colours."""
    if len(inputs.shape) != 3 or inputs.shape[0] != 3:
        raise ValueError(f"The encoder `{encoder}` takes images, but the task's inputs are {inputs.shape}.")


def check_weights_name(name: str) -> None:
    """Raise a ValueError unless a value of `encoder.weights` is empty or the name of a file."""
    if name and not is_weights_name(name):
        raise ValueError(
            "`encoder.weights` must be empty or a file's name as `launch/pretrain.py` gives it, with sixteen "
            f"digits at its end, but got {name!r}; `--weights` takes any file."
        )


def load_backbone(nets: nn.ModuleList, weights: Weights, width: int, stem: Stem) -> None:
    """Load the pretrained backbone into every network; the last layers stay."""
    require_fitting(weights, width, stem)
    for net in nets:
        assert isinstance(net, nn.Sequential)
        try:
            net[0].load_state_dict(weights.state)
        except RuntimeError:  # torch's message is a page of names
            raise ValueError(f"The weights {weights.file_name} do not fit the encoder's network.") from None


def adopted_weights(path: Path, stem: Stem) -> Weights:
    """Return the weights in a user's file: from `launch/pretrain.py`, or a `state_dict` with torchvision's names.

    For a `state_dict` only the tensors are known; a classification layer `fc` is left out.

    Raises:
        ValueError: If it is neither, or belongs to another network.
    """
    given = plain_state(path)
    if given is None:
        return load_weights(path)
    first = given.get("conv1.weight", torch.empty(64))
    width = max(1, first.shape[0]) if first.ndim else 64
    expected, state = backbone(width, stem).state_dict(), {}
    for name, like in expected.items():
        theirs = _torchvision_name(name)
        if theirs not in given:
            raise ValueError(f"{path} must have the weights of a ResNet-18, but has no {theirs}.")
        if given[theirs].shape != like.shape:
            shapes = f"{tuple(given[theirs].shape)} instead of {tuple(like.shape)}"
            raise ValueError(
                f"{path} must have the weights of a ResNet-18 for {stem.images}, but {theirs} is {shapes}."
            )
        state[name] = given[theirs].to(like.dtype).contiguous()
    known = {_torchvision_name(name) for name in expected}
    if more := [name for name in given if name not in known and not name.startswith("fc.")]:
        raise ValueError(f"{path} must have the weights of a ResNet-18, but also has {more[0]}.")
    name = re.sub(r"[^\w.]", "_", path.stem)
    return Weights(stem.kind, width, name, "", math.nan, 0, 0, 0.0, 0, 0, state)


def _torchvision_name(name: str) -> str:
    """Return torchvision's name of a tensor of `backbone`: "4.conv1.weight" is "layer1.0.conv1.weight"."""
    place, _, rest = name.partition(".")
    stage, block = divmod(int(place) - 4, 2)
    return f"layer{stage + 1}.{block}.{rest}" if stage >= 0 else f"{('conv1', 'bn1')[int(place)]}.{rest}"


def require_fitting(weights: Weights, width: int, stem: Stem) -> None:
    """Raise a ValueError unless weights are of this network's kind and width."""
    if (weights.kind, weights.width) != (stem.kind, width):
        raise ValueError(
            f"`encoder.width={width}` needs weights of a {stem.kind} of that width, for {stem.images}, but "
            f"{weights.file_name} has a {weights.kind} of width {weights.width}."
        )
