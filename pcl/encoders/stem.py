"""The first layer of a ResNet-18, chosen by the size of its images, and the statistics that scale them."""

from dataclasses import dataclass

import torch
from torch import Tensor

_LARGEST_SMALL = 48  # side of the largest images that get the first layer for small ones


@dataclass(frozen=True)
class Stem:
    """The first layer of a backbone, and the scaling of its images."""

    kind: str  # of the backbone, in files of weights
    images: str  # in words
    kernel: int
    stride: int
    # Mean and standard deviation of each colour, from 0 to 1, that images are scaled by.
    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]

    @classmethod
    def of(cls, side: int) -> "Stem":
        """Return the stem for images of this side."""
        return SMALL if side <= _LARGEST_SMALL else LARGE

    def byte_statistics(self) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of each colour, (3, 1, 1), for bytes: no division by 255 is needed."""
        mean, deviation = (255 * torch.tensor(values).view(3, 1, 1) for values in (self.mean, self.deviation))
        return mean, deviation


# Statistics of CIFAR-10's training images, and of ImageNet's as torchvision uses them.
SMALL = Stem("resnet18_pooled", "small images", 3, 1, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
LARGE = Stem("resnet18_large", "large images", 7, 2, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
