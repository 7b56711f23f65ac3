"""An encoder's view of images: which it is certain of, which lie in its credible intervals, what kappa predicts.

Tensors in, findings out: `pcl.studies.inspection.page` shows them.

Axes: N images, C classes, D dim.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pcl.data.images import ImageSet
from pcl.distributions import VonMisesFisher
from pcl.mathematics.random_streams import mixed_seed
from pcl.metrics.crops import centre_crop_and_resize, draw_fractions
from pcl.metrics.retrieval import RejectionCurve, credible_images, rejection_curve
from pcl.metrics.uncertainty import crop_rank_corr, entropy, rank_corr_with_uncertainty
from pcl.prediction.posteriors import LEVEL

N_EXTREMES = 5  # least and most certain images of a class, as in the paper
N_QUERIES = 8
N_SHOWN = 10  # of the images in a query's interval
MOST_IMAGES = 10_000  # of a set that an encoder was not trained on: neighbours take time with the square


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images to look at."""

    images: Tensor  # uint8 (N, 3, S, S)
    labels: Tensor  # the class with the largest share, int64 (N,)
    entropy: Tensor  # of the annotators' shares, (N,)
    crops: Tensor  # the images' centres, enlarged, (N, 3, S, S)
    kept: Tensor  # side of the crop over that of the image, (N,)


@dataclass(frozen=True)
class Extremes:
    """A class's images by certainty."""

    label: int
    n_images: int  # how many it has
    least: list[int]  # images with the smallest kappa, the smallest first
    most: list[int]  # images with the largest kappa, the largest first


@dataclass(frozen=True)
class Query:
    """An image and those whose mu lies in its credible interval {z : z.mu >= t}, itself excluded."""

    image: int  # the query
    threshold: float  # t
    n_inside: int  # images in the interval
    n_same: int  # those of the query's class
    shown: list[int]  # by falling cosine: all, or evenly spaced ones from the nearest to the farthest
    cosines: list[float]  # of `shown` with the query


@dataclass(frozen=True, eq=False)
class Findings:
    """All that a page of images shows."""

    pictures: Pictures  # what was looked at
    kappa: Tensor  # of the images, (N,)
    kappa_of_crops: Tensor  # of the crops, (N,)
    extremes: list[Extremes]  # of every class that has images
    queries: list[Query]  # from the most certain image to the least, evenly spaced by rank
    curve: RejectionCurve  # Recall@1 as the least certain are rejected
    entropy_rank_corr: float  # of 1/kappa with the entropy; NaN where that is constant
    crop_rank_corr: float  # of 1/kappa with what was cropped away

    @property
    def recall_at_1(self) -> float:
        """Return Recall@1 of all images."""
        return float(self.curve.recall[-1])

    @property
    def has_entropy(self) -> bool:
        """Return whether annotators disagree more about some images than about others."""
        return bool(self.pictures.entropy.min() < self.pictures.entropy.max())


def all_pictures(data: ImageSet) -> Pictures:
    """Return the images of a set with crops: all, or `MOST_IMAGES` at random."""
    generator = torch.Generator().manual_seed(mixed_seed("looking"))
    n = len(data.images)
    chosen = torch.randperm(n, generator=generator)[:MOST_IMAGES].sort().values
    images, shares = data.images[chosen], data.soft_labels[chosen]
    kept = draw_fractions(len(images), generator)
    return Pictures(images, shares.argmax(1), entropy(shares), centre_crop_and_resize(images, kept), kept)


def look(posterior: VonMisesFisher, kappa_of_crops: Tensor, pictures: Pictures) -> Findings:
    """Return the findings from the posterior of the images, batch (N,), and kappa of their crops, (N,).

    Raises:
        ValueError: If there are fewer than 2 images, or the encoder's numbers are not finite.
    """
    kappa, labels = posterior.kappa, pictures.labels
    if len(labels) < 2:
        raise ValueError(f"At least 2 images must be given to look at, but got {len(labels)}.")
    require_finite(posterior.mu.isfinite().all(dim=-1) & kappa.isfinite() & kappa_of_crops.isfinite())
    return Findings(
        pictures,
        kappa,
        kappa_of_crops,
        extremes(kappa, labels),
        queries(posterior, labels),
        rejection_curve(posterior.mu, labels, kappa),
        rank_corr_with_uncertainty(kappa, pictures.entropy),
        crop_rank_corr(kappa_of_crops, pictures.kept),
    )


def require_finite(is_finite: Tensor) -> None:
    """Raise a ValueError unless an encoder's numbers are finite for all images, (N,)."""
    if not is_finite.all():
        n_bad, n = int((~is_finite).sum()), len(is_finite)
        raise ValueError(f"The encoder returns NaN or infinity for {n_bad} of {n} images: it has diverged.")


def extremes(kappa: Tensor, labels: Tensor, n_each: int = N_EXTREMES) -> list[Extremes]:
    """Return the least and the most certain images of every class by kappa and labels (N,); of ties, the first.

    No image is on both sides: a class with fewer than twice `n_each` is halved. A single image is on both.

    Example:
        >>> extremes(torch.tensor([3.0, 1.0, 2.0, 9.0]), torch.tensor([0, 0, 0, 1]))[0]
        Extremes(label=0, n_images=3, least=[1], most=[0])
    """
    found = []
    for label in labels.unique().tolist():
        members = (labels == label).nonzero().squeeze(1)
        n = min(n_each, max(1, len(members) // 2))
        rising, falling = (kappa[members].sort(stable=True, descending=down).indices[:n] for down in (False, True))
        found.append(Extremes(label, len(members), members[rising].tolist(), members[falling].tolist()))
    return found


def queries(posterior: VonMisesFisher, labels: Tensor, n_queries: int = N_QUERIES) -> list[Query]:
    """Return images from the most certain to the least, evenly spaced by rank, with those in their intervals.

    Posterior and labels are those of all images, (N,). If there are fewer than `n_queries`, all are queries.
    """
    order = posterior.kappa.sort(stable=True, descending=True).indices
    chosen = order[_spread(len(order), n_queries)]
    threshold = VonMisesFisher(
        posterior.mu[chosen].double(), posterior.kappa[chosen].double(), validate_args=False
    ).credible_threshold(LEVEL)  # fmt: skip
    inside = credible_images(posterior.mu[chosen], threshold, posterior.mu)
    inside[torch.arange(len(chosen)), chosen] = False
    directions = torch.nn.functional.normalize(posterior.mu.double(), dim=-1)
    found = []
    for image, lowest, members in zip(chosen.tolist(), threshold.tolist(), inside, strict=True):
        near = members.nonzero().squeeze(1)
        cosines, places = (directions[near] @ directions[image]).sort(stable=True, descending=True)
        near = near[places]
        shown = _spread(len(near), N_SHOWN)
        n_same = int((labels[near] == labels[image]).sum())
        found.append(Query(image, lowest, len(near), n_same, near[shown].tolist(), cosines[shown].tolist()))
    return found


def _spread(n: int, n_chosen: int) -> Tensor:
    """Return evenly spaced places from the first to the last of n; all if there are few."""
    if n <= n_chosen:
        return torch.arange(n)
    return torch.linspace(0, n - 1, n_chosen, dtype=torch.float64).round().long()
