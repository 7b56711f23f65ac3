"""The images that encoders are judged on: a part of a fold, with labels, annotators' entropy and crops.

Axes: R runs, n images, D dim.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from pcl.data.authors_folds import Origin, authors_crops, has_authors
from pcl.data.images import ImageSet
from pcl.encoders import Encoder
from pcl.mathematics.random_streams import mixed_seed
from pcl.metrics.crops import centre_crop_and_resize, draw_fractions
from pcl.metrics.uncertainty import entropy

_BLOCK, _CUDA_BLOCK = 500, 2_000  # images encoded at once


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


@torch.no_grad()
def encoded(encoder: Encoder, by_run: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Return modes (n, D) and concentrations (n,) of each run's images, in evaluation mode.

    Runs are encoded side by side, so that those with fewer images encode their last one repeatedly.
    """
    longest = max(len(images) for images in by_run)
    images = torch.stack([torch.cat([i, i[-1:].expand(longest - len(i), *i.shape[1:])]) for i in by_run])
    was_training = encoder.training
    encoder.eval()
    try:
        posteriors = [encoder(part) for part in images.split(_CUDA_BLOCK if images.is_cuda else _BLOCK, dim=1)]
    finally:
        encoder.train(was_training)
    mu, kappa = (torch.cat([getattr(p, name) for p in posteriors], dim=1) for name in ("mu", "kappa"))
    return [(mu[run, : len(i)], kappa[run, : len(i)]) for run, i in enumerate(by_run)]
