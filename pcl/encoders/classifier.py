"""A pretrained classifier as an encoder: the baseline of a practitioner without a probabilistic embedding.

Axes: R runs, B images, C classes, D dim.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self, final

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pcl.data.weights import named_weights
from pcl.distributions import VonMisesFisher
from pcl.encoders.base import Encoder, EncoderConfig, Inputs
from pcl.encoders.resnet import N_FEATURES, check_images, check_weights_name, classifier, load_backbone
from pcl.encoders.stem import SMALL, Stem
from pcl.mathematics.random_streams import mixed_seed

_N_CLASSES = 10  # of a network that is not pretrained
_LEAST_ENTROPY = 1e-6  # added, so that kappa is finite; float32 tells apart entropies far below it


class Certainty(Enum):
    """The number that serves as kappa, up to its unit."""

    ENTROPY = "entropy"  # 1 / H of the classifier's softmax
    NORM = "norm"  # length of its last features
    CONSTANT = "constant"  # the same for all images


@final
class ClassifierEncoder(Encoder):
    """mu is the direction of a pretrained classifier's last features, kappa its certainty in a learned unit.

    Nothing else is trained. Ranks of kappa do not depend on the unit, so that one batch of training is enough for all
    image metrics. Without weights, as at the scale `smoke`, the networks are random.
    """

    @dataclass(frozen=True)
    class Config(EncoderConfig):
        """Settings of the encoder."""

        width: int = 64  # channels of the first stage
        weights: str = ""  # as in `ResNetEncoder`; `certainty=entropy` needs weights with a classification layer
        certainty: Certainty = Certainty.ENTROPY  # number that serves as kappa

        def __post_init__(self) -> None:
            if self.width < 1:
                raise ValueError(f"`encoder.width >= 1` must hold, but got {self.width}.")
            check_weights_name(self.weights)

        @property
        def dim(self) -> int:  # type: ignore[override]  # other encoders have it as a setting
            return N_FEATURES * self.width

        def build_for(self, inputs: Inputs, seeds: Sequence[int]) -> "ClassifierEncoder":
            return ClassifierEncoder(self, seeds, Stem.of(inputs.shape[-1]))

        def check(self, inputs: Inputs) -> None:
            check_images("ClassifierEncoder", inputs)

        def without_weights(self) -> Self:
            return replace(self, weights="")

        @property
        def pretrained_width(self) -> int | None:
            return self.width

    mean: Tensor
    deviation: Tensor

    def __init__(self, config: Config, seeds: Sequence[int], stem: Stem = SMALL) -> None:
        super().__init__()
        self.config = config
        weights = named_weights(config.weights) if config.weights else None
        head = weights.head if weights is not None else {}
        if weights is not None and not head and config.certainty is Certainty.ENTROPY:
            raise ValueError(
                f"`encoder.certainty=entropy` needs a classification layer, which {weights.file_name} lacks; "
                "train weights with `launch/pretrain.py` and name their file."
            )
        n_classes = len(head["bias"]) if head else _N_CLASSES
        self.nets = nn.ModuleList(
            classifier(config.width, stem, n_classes, mixed_seed(seed, "encoder/classifier")) for seed in seeds
        )
        if weights is not None:
            load_backbone(self.nets, weights, config.width, stem)
        if head:
            for net in self.nets:
                _, last = net.children()
                last.load_state_dict(head)
        self.nets.requires_grad_(False).eval()
        self.log_unit = nn.Parameter(torch.zeros(len(seeds)))
        mean, deviation = stem.byte_statistics()
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("deviation", deviation, persistent=False)

    def train(self, mode: bool = True) -> "ClassifierEncoder":
        """Set the mode; the networks are always in evaluation mode, with the statistics of their pretraining."""
        super().train(mode)
        self.nets.eval()
        return self

    def forward(self, x: Tensor) -> VonMisesFisher:
        """Return posteriors with batch (R, B) for images (R, B, 3, S, S), bytes or numbers from 0 to 255."""
        with torch.no_grad():
            found = [self._judged(net, images) for net, images in zip(self.nets, x, strict=True)]
            features, certainty = (torch.stack(parts) for parts in zip(*found, strict=True))
        unit = self.log_unit.exp().unsqueeze(-1)
        # The unit enters mu as well, without an effect: losses that use mu alone then have a gradient too, of 0.
        mu = normalize(unit.unsqueeze(-1) * features, dim=-1)
        return VonMisesFisher(mu, unit * certainty, validate_args=False, law=self.config.law)

    def _judged(self, net: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (B, D) and certainties (B,)."""
        body, head = net.children()
        features: Tensor = body((images - self.mean) / self.deviation)
        if self.config.certainty is Certainty.NORM:
            return features, features.norm(dim=-1)
        if self.config.certainty is Certainty.CONSTANT:
            return features, torch.ones_like(features[:, 0])
        log_shares = head(features).double().log_softmax(-1)
        entropy = -(log_shares.exp() * log_shares).sum(-1)
        return features, (1 / (entropy + _LEAST_ENTROPY)).float()

    def mu_parameters(self) -> Iterator[nn.Parameter]:
        """Return the logarithm of kappa's unit, which all phases train."""
        yield self.log_unit

    kappa_parameters = mu_parameters

    def run_state(self, run: int) -> dict[str, Tensor]:
        state = {name: value.detach().clone() for name, value in self.nets[run].state_dict().items()}
        return {**state, "log_unit": self.log_unit[run].detach().clone()}

    def load_run_state(self, run: int, state: dict[str, Tensor]) -> None:
        rest = dict(state)
        with torch.no_grad():
            self.log_unit[run] = rest.pop("log_unit")
        body, last = self.nets[run].children()
        n_classes, n_features = rest["1.weight"].shape
        if n_classes != len(last.state_dict()["bias"]):  # built without weights, so their number of classes was unknown
            self.nets[run] = nn.Sequential(body, nn.Linear(n_features, n_classes)).requires_grad_(False).eval()
        self.nets[run].load_state_dict(rest)
