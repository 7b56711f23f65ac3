"""The image experiments' encoder: a ResNet-18 for 32 x 32 pixels. Only its settings are here yet."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, final

from pcl.distributions import Sampler, SamplerGradient

NO_IMAGES = "Image training is not part of this version; train a configuration of the task 'toy'."


@final
class ResNetEncoder:
    """mu = e / ||e|| and kappa = ||e|| of an embedding e, linear in the last features."""

    @dataclass(frozen=True)
    class Config:
        """Settings of the encoder.

        Attributes:
            dim: Dimension D of the latent space.
            head_gain: Gain of the last layer's Xavier initialisation, hence the scale of kappa-hat before training; the
                released scripts set it to kappa_pos.
            sampler: Law of samples from the posteriors.
            sampler_gradient: Gradient that these samples carry.
        """

        dim: int = 8
        head_gain: float = 16.0  # as kappa_pos of the images task
        sampler: Sampler = Sampler.EXACT
        sampler_gradient: SamplerGradient = SamplerGradient.EXACT

        def __post_init__(self) -> None:
            if self.dim < 2:
                raise ValueError(f"`encoder.dim >= 2` must hold, but got {self.dim}.")
            if not 0 < self.head_gain < math.inf:
                raise ValueError(f"`0 < encoder.head_gain < inf` must hold, but got {self.head_gain:g}.")

        def build(self, seeds: Sequence[int]) -> NoReturn:
            """The encoders with these settings, in a later version."""
            raise ValueError(NO_IMAGES)
