"""The images that encoders are judged on: a part of a fold, with labels, annotators' entropy and crops.

Axes: n images.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from pcl.data.authors_folds import Origin, authors_crops, has_authors
from pcl.data.images import ImageSet
from pcl.mathematics.random_streams import mixed_seed
from pcl.metrics.crops import centre_crop_and_resize, draw_fractions
from pcl.metrics.uncertainty import entropy


class JudgedImages(NamedTuple):
    """Images for evaluation, (n, 3, S, S), with labels and the entropy of the annotators' shares."""

    images: Tensor
    labels: Tensor
    entropy: Tensor
    crops: Tensor
    kept: Tensor  # side of the crop over that of the image

    @classmethod
    def of(cls, data: ImageSet, chosen: Tensor, crops: Origin, purpose: str) -> "JudgedImages":
        """Return these images of a set; `purpose` names the random numbers of our own crops."""
        images, shares = data.images[chosen], data.soft_labels[chosen]
        if crops is Origin.AUTHORS and has_authors(data):
            kept = authors_crops()[: len(images)]
        else:
            kept = draw_fractions(len(images), torch.Generator().manual_seed(mixed_seed(purpose)))
        return cls(images, shares.argmax(1), entropy(shares), centre_crop_and_resize(images, kept), kept)
