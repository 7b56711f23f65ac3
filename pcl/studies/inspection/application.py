"""Application of a trained encoder to a folder of any number of images: kappa, near duplicates, outliers, Recall@1.

Pixels are held one batch at a time. D + 2 numbers and a name are kept for each image.

Axes: N images, D dim, P pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pcl.data.folder import unreadable_told
from pcl.distributions import VonMisesFisher
from pcl.metrics.retrieval import RejectionCurve, nearest_neighbours, rejection_of_hits
from pcl.prediction.posteriors import angle_between, prediction_of
from pcl.studies.inspection.findings import require_finite
from pcl.studies.inspection.image_stream import ImageFolder

BATCH = 500  # images decoded and encoded at once
_SLACK = 1e-7  # radians; the rounding of a direction in float32

Encode = Callable[[Tensor], VonMisesFisher]
Report = Callable[[int], None]  # called with the number of files, or images, that are done


@dataclass(frozen=True, eq=False)
class Applied:
    """An encoder's view of a folder's images, in the order of their files."""

    folder: ImageFolder
    places: list[int]  # indices of the images among the folder's files
    unreadable: list[int]  # indices of the files that are not images
    mu: Tensor  # (N, D)
    kappa: Tensor  # (N,)

    @cached_property
    def credible_angle(self) -> Tensor:
        """Angle between mu and the edge of the cap that holds 95% of the posterior, radians, float64 (N,)."""
        return prediction_of(VonMisesFisher(self.mu, self.kappa, validate_args=False)).credible_angle

    @cached_property
    def by_ambiguity(self) -> Tensor:
        """Images from the smallest kappa to the largest, int64 (N,); ties in the order of their files."""
        return self.kappa.sort(stable=True).indices

    @cached_property
    def names(self) -> list[str]:
        """Path of each image inside the folder."""
        return [self.folder.name_of(place) for place in self.places]

    @property
    def unreadable_told(self) -> str:
        """A sentence about files that cannot be read; empty if there are none."""
        bad = [self.folder.name_of(place) for place in self.unreadable]
        return unreadable_told(bad, len(self.folder.files), self.folder.path) if bad else ""

    @cached_property
    def classes(self) -> list[str]:
        """Subfolder of each image; empty unless every image is in one and there are at least two."""
        found = [self.folder.class_of(place) for place in self.places]
        return found if "" not in found and len(set(found)) > 1 else []


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Near duplicates, outliers and labels of nearest neighbours, by the credible caps around each mu.

    The cap of an image holds 95% of its posterior. Nearest neighbours have the largest cosine between their mu.
    """

    nearest: Tensor  # each image's nearest other, int64 (N,)
    angle: Tensor  # to it, radians, float64 (N,)
    duplicates: Tensor  # image and nearest other, each in the other's cap, the nearest pairs first, int64 (P, 2)
    outliers: Tensor  # images with no other in their cap, int64, by falling ratio of the angle to that of the cap
    curve: RejectionCurve | None  # Recall@1 as the least certain are rejected; None without classes


def applied(encode: Encode, folder: ImageFolder, side: int, report: Report, batch_size: int = BATCH) -> Applied:
    """Encode a folder's images of `side` pixels, batch by batch; files that cannot be read are kept apart.

    Raises:
        ValueError: If no file can be read, or the encoder's numbers are not finite.
    """
    places, unreadable = list[int](), list[int]()
    parts = list[VonMisesFisher]()
    for batch in folder.batches(side, batch_size):
        if batch.places:
            posterior = encode(batch.images)
            require_finite(posterior.mu.isfinite().all(dim=-1) & posterior.kappa.isfinite())
            parts.append(posterior)
        places += batch.places
        unreadable += batch.unreadable
        report(len(places) + len(unreadable))
    if not places:
        raise ValueError(f"None of the {len(unreadable):,} files in {folder.path} can be read as an image.")
    mu, kappa = (torch.cat([getattr(part, name) for part in parts]) for name in ("mu", "kappa"))
    return Applied(folder, places, unreadable, mu, kappa)


def neighbourhood(found: Applied, report: Report, device: str | torch.device = "cpu") -> Neighbourhood:
    """Compare every image with every other on a device, block by block; there must be at least two."""
    near = list[Tensor]()
    for block in nearest_neighbours(found.mu.to(device)):
        near.append(block.nearest.cpu())
        report(block.rows.stop)
    nearest = torch.cat(near)
    directions = torch.nn.functional.normalize(found.mu.double(), dim=-1)
    angle = angle_between(directions, directions[nearest])
    cap = found.credible_angle
    is_in_own, is_in_other = angle <= cap + _SLACK, angle <= cap[nearest] + _SLACK
    outside = (~is_in_own).nonzero().squeeze(1)
    excess = angle[outside] / cap[outside].clamp(min=torch.finfo(cap.dtype).tiny)
    outliers = outside[excess.sort(descending=True, stable=True).indices]
    duplicates = _pairs((is_in_own & is_in_other).nonzero().squeeze(1), nearest, angle)
    return Neighbourhood(nearest, angle, duplicates, outliers, _curve(found, nearest))


def _pairs(images: Tensor, nearest: Tensor, angle: Tensor) -> Tensor:
    """Return pairs of images with their nearest others, each once, by rising angle, (P, 2)."""
    pairs = torch.stack([images, nearest[images]], dim=1).sort(dim=1).values
    order = angle[images].sort(stable=True).indices
    seen = dict.fromkeys(map(tuple, pairs[order].tolist()))
    return torch.tensor(list(seen), dtype=torch.int64).view(-1, 2)


def _curve(found: Applied, nearest: Tensor) -> RejectionCurve | None:
    if not found.classes:
        return None
    names = {name: label for label, name in enumerate(dict.fromkeys(found.classes))}
    labels = torch.tensor([names[name] for name in found.classes])
    return rejection_of_hits(labels[nearest] == labels, found.kappa)
