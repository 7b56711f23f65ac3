"""A synthetic image set: ten kinds of figure with a known ambiguity, and simulated annotators.

An image has a figure y, a second figure y', an ambiguity a in [0, 1] and one of three causes of it:

    blend      the mask is (1 - a/2) m_y + (a/2) m_y', with y' any other figure
    occlusion  a grey bar hides the share 0.85 a of the figure's width; y' is the look-alike of y
    blur       a Gaussian blur of 4 a pixels, and noise of standard deviation 0.03 + 0.09 a; y' as above

Place, size, tilt, reflection and the two colours are drawn at random, independently of the figure. a = u^2, with u
uniform: half of the images have an ambiguity below 1/4, as most photographs are clear. Each of 50 annotators votes by

    P(y) = 1 - a/2,  P(y') = a/2,

and the soft label is the share of their votes. The entropy of P grows with a from 0 to log 2, whatever the cause.

Everything is computed in double precision from uniform numbers alone, so that the bytes do not depend on the processor.

Axes: N images, then the rows and columns of pixels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from pcl.data.images import SIDE, ImageSet
from pcl.mathematics.threads import using_threads

CLASSES = (
    "disc", "ring", "square", "checker", "triangle", "star", "cross", "vertical", "horizontal", "diagonal",
)  # fmt: skip
_LOOK_ALIKE = (1, 0, 3, 2, 5, 4, 7, 6, 9, 8)  # neighbours in CLASSES, which blur or a bar makes easy to confuse
N_ANNOTATORS = 50  # about as many as CIFAR-10H has for an image
_CHUNK = 250  # images drawn at once, sized for the processor's cache; another number draws another set
_TRAIN_STREAM = 1 << 32  # added to the seed for the training images


class Cause(IntEnum):
    """Cause of an image's ambiguity."""

    BLEND = 0
    OCCLUSION = 1
    BLUR = 2


class Embedded(NamedTuple):
    """A drawn set, with the ambiguity and its cause, which annotators can only guess."""

    images: ImageSet
    ambiguity: Tensor  # float64 (N,), a
    cause: Tensor  # int64 (N,), of `Cause`


@dataclass(frozen=True)
class _Plan:
    """Content of each image: int64 (N,), except the ambiguity, which is float64 (N,)."""

    figure: Tensor
    second: Tensor
    cause: Tensor
    ambiguity: Tensor


def embedded(n: int = 2_000, seed: int = 0, n_train: int = 2_000) -> Embedded:
    """Draw the embedded image set: n images with soft labels, and separate training images with the label y alone.

    There are at least 10 of each, and every block of ten shows each figure once.

    Example:
        >>> drawn = embedded(n=20, n_train=10)
        >>> tuple(drawn.images.images.shape), drawn.images.name
        ((20, 3, 32, 32), 'embedded')
    """
    for name, count in (("n", n), ("n_train", n_train)):
        if count < len(CLASSES):
            raise ValueError(f"`{name} >= {len(CLASSES)}` must hold, but got {count}.")
    generator = torch.Generator().manual_seed(seed)
    plan = _plan(n, generator)
    shares = _votes(vote_probabilities(plan.figure, plan.second, plan.ambiguity), generator) / N_ANNOTATORS
    pixels = _drawn(plan, generator)
    generator = torch.Generator().manual_seed(seed + _TRAIN_STREAM)
    train = _plan(n_train, generator)
    images = ImageSet(
        "embedded", CLASSES, pixels, shares.float(), plan.figure, _drawn(train, generator), train.figure
    )  # fmt: skip
    return Embedded(images, plan.ambiguity, plan.cause)


def vote_probabilities(figure: Tensor, second: Tensor, ambiguity: Tensor) -> Tensor:
    """Return the probabilities of an annotator's vote: 1 - a/2 for the figure, a/2 for the second, (N, 10)."""
    first = torch.nn.functional.one_hot(figure, len(CLASSES)) * (1 - ambiguity / 2).unsqueeze(1)
    return first + torch.nn.functional.one_hot(second, len(CLASSES)) * (ambiguity / 2).unsqueeze(1)


def write_sheet(path: Path) -> None:
    """Write a PNG with every figure (columns), clear and by cause at half and at full ambiguity (rows)."""
    from PIL import Image, ImageDraw  # noqa: PLC0415  only for the picture

    rows = [("clear", Cause.BLUR, 0.0)] + [(f"{c.name.lower()} {a:g}", c, a) for c in Cause for a in (0.5, 1.0)]
    n_classes, zoom, left, top = len(CLASSES), 2, 76, 14
    figure = torch.arange(n_classes).repeat(len(rows))
    cause = torch.tensor([int(row[1]) for row in rows]).repeat_interleave(n_classes)
    ambiguity = torch.tensor([row[2] for row in rows], dtype=torch.float64).repeat_interleave(n_classes)
    # Blends use a figure other than the look-alike, which the other rows show.
    second = torch.where(cause == Cause.BLEND, (figure + 3) % n_classes, torch.tensor(_LOOK_ALIKE)[figure])
    plan = _Plan(figure, second, cause, ambiguity)
    pixels = _drawn(plan, torch.Generator().manual_seed(0)).permute(0, 2, 3, 1).numpy()
    step = SIDE * zoom + 2
    sheet = Image.new("RGB", (left + n_classes * step, top + len(rows) * step), "white")
    pen = ImageDraw.Draw(sheet)
    for column, name in enumerate(CLASSES):
        pen.text((left + column * step + 2, 1), name, fill="black")
    for row, (title, _, _) in enumerate(rows):
        pen.text((2, top + row * step + SIDE - 6), title, fill="black")
        for column in range(n_classes):
            tile = Image.fromarray(pixels[row * n_classes + column])
            tile = tile.resize((SIDE * zoom, SIDE * zoom), Image.Resampling.NEAREST)
            sheet.paste(tile, (left + column * step, top + row * step))
    path.parent.mkdir(parents=True, exist_ok=True)
    # A palette, as the noise would make a true-colour file five times as large.
    sheet.quantize(64, dither=Image.Dither.NONE).save(path, format="PNG", optimize=True)


def _plan(n: int, generator: torch.Generator) -> _Plan:
    """Plan the figures in turn, so that every class has its share, and the rest at random."""
    u = torch.rand(n, 3, generator=generator, dtype=torch.float64)
    n_classes = len(CLASSES)
    figure = torch.arange(n) % n_classes
    cause = (u[:, 0] * len(Cause)).long()
    other = (figure + 1 + (u[:, 1] * (n_classes - 1)).long()) % n_classes
    second = torch.where(cause == Cause.BLEND, other, torch.tensor(_LOOK_ALIKE)[figure])
    return _Plan(figure, second, cause, u[:, 2].square())


def _votes(probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """Draw votes by class (N, 10), by the inverse of the cumulative probabilities."""
    u = torch.rand(len(probabilities), N_ANNOTATORS, generator=generator, dtype=torch.float64)
    cumulated = probabilities.cumsum(1)
    said = torch.searchsorted(cumulated, u, right=True).clamp_max(len(CLASSES) - 1)
    return torch.nn.functional.one_hot(said, len(CLASSES)).sum(1)


def _drawn(plan: _Plan, generator: torch.Generator) -> Tensor:
    """Return the images, uint8 (N, 3, 32, 32)."""
    parts = []
    with using_threads(1):
        for start in range(0, len(plan.figure), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            part = _Plan(plan.figure[chunk], plan.second[chunk], plan.cause[chunk], plan.ambiguity[chunk])
            parts.append(_drawn_at_once(part, generator))
    return torch.cat(parts)


def _drawn_at_once(plan: _Plan, generator: torch.Generator) -> Tensor:
    n = len(plan.figure)
    u = torch.rand(n, 13, 1, 1, generator=generator, dtype=torch.float64).unbind(1)
    strength = {cause: (plan.ambiguity * (plan.cause == cause)).view(n, 1, 1) for cause in Cause}
    radius = 8.5 + 4.5 * u[0]  # pixels
    x, y = _coordinates(radius, centre=(6 * u[1] - 3, 6 * u[2] - 3), tilt=0.4 * u[3] - 0.2, mirror=u[4])
    mask = _mask(plan.figure, x, y, radius)
    blends, blurs = plan.cause == Cause.BLEND, plan.cause == Cause.BLUR
    other = _mask(plan.second[blends], x[blends], y[blends], radius[blends])
    mask[blends] += strength[Cause.BLEND][blends] / 2 * (other - mask[blends])
    mask[blurs] = _blurred(mask[blurs], 4 * strength[Cause.BLUR][blurs])

    dark = 0.35 * torch.stack(u[5:8], dim=1)  # (N, 3, 1, 1)
    bright = 0.55 + 0.45 * torch.stack(u[8:11], dim=1)
    pixels = dark + (bright - dark) * mask.unsqueeze(1)
    # The bar comes from the left or the right of the figure, whose edges are at x = -0.95 and 0.95.
    from_edge = 0.95 + torch.where(u[11] < 0.5, x, -x)
    covers = (from_edge < 1.9 * 0.85 * strength[Cause.OCCLUSION]) & (strength[Cause.OCCLUSION] > 0) & (y.abs() < 1.1)
    pixels = torch.where(covers.unsqueeze(1), 0.35 + 0.2 * u[12].unsqueeze(1), pixels)

    # The sum of three uniform numbers, centred: variance 1/4, hence the 2.
    noise = torch.rand(3, n, 3, SIDE, SIDE, generator=generator, dtype=torch.float64).sum(0) - 1.5
    pixels = pixels + 2 * (0.03 + 0.09 * strength[Cause.BLUR]).unsqueeze(1) * noise
    return (pixels * 255).round().clamp(0, 255).to(torch.uint8)


def _coordinates(radius: Tensor, centre: tuple[Tensor, Tensor], tilt: Tensor, mirror: Tensor) -> tuple[Tensor, Tensor]:
    """Return each pixel's coordinates, right and up, in a figure's frame, in units of its radius, (N, 32, 32)."""
    axis = torch.arange(SIDE, dtype=torch.float64) - (SIDE - 1) / 2
    right, up = (axis.view(1, 1, SIDE) - centre[0]) / radius, (-axis.view(1, SIDE, 1) - centre[1]) / radius
    right = torch.where(mirror < 0.5, -right, right)
    return right * tilt.cos() + up * tilt.sin(), up * tilt.cos() - right * tilt.sin()


def _mask(figure: Tensor, x: Tensor, y: Tensor, radius: Tensor) -> Tensor:
    """Return the share of each pixel inside the figure: 1/2 on its edge, falling over one pixel."""
    mask = torch.empty_like(x)
    for index, distance in enumerate(_DISTANCES):
        chosen = figure == index
        mask[chosen] = (0.5 - distance(x[chosen], y[chosen]) * radius[chosen]).clamp(0, 1)
    return mask


def _blurred(mask: Tensor, width: Tensor) -> Tensor:
    """Return a Gaussian blur with a width in pixels for each image, as matrix products from both sides."""
    apart = torch.arange(SIDE, dtype=torch.float64)
    apart = (apart.view(-1, 1) - apart).square()
    kernel = torch.exp(-apart / (2 * width.clamp_min(0.05).square()))  # 0.05 pixels is none at all
    kernel = kernel / kernel.sum(dim=2, keepdim=True)
    return kernel @ mask @ kernel.mT


# Signed distances to the figures' edges, negative inside; (n, 32, 32) -> (n, 32, 32).


def _square(x: Tensor, y: Tensor, half: float = 0.82) -> Tensor:
    return torch.maximum(x.abs(), y.abs()) - half


def _polygon_sides(x: Tensor, y: Tensor, n_sides: int, apothem: float) -> Tensor:
    """Return the distance beyond each side of a regular polygon that stands on one, (n_sides, n, 32, 32)."""
    angles = [-math.pi / 2 + 2 * math.pi * side / n_sides for side in range(n_sides)]
    return torch.stack([x * math.cos(angle) + y * math.sin(angle) - apothem for angle in angles])


def _star(x: Tensor, y: Tensor) -> Tensor:
    """Return the distance to a pentagram, whose inside is beyond at most one side of its pentagon."""
    beyond = _polygon_sides(-x, -y, 5, math.cos(2 * math.pi / 5)).sort(dim=0).values
    return beyond[-2]


def _cross(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(torch.minimum(x.abs(), y.abs()) - 0.27, _square(x, y, 0.95))


def _wave(x: Tensor, cell: float) -> Tensor:
    """Return the distance to the nearest border between cells of this length, positive in every second cell."""
    return cell * (0.5 - (torch.remainder(x / cell, 2) - 1).abs())


def _stripes(x: Tensor, y: Tensor, along: Tensor) -> Tensor:
    return torch.maximum(_square(x, y, 0.9), _wave(along, 0.3))


def _checker(x: Tensor, y: Tensor) -> Tensor:
    a, b = _wave(x, 0.45), _wave(y, 0.45)
    return torch.maximum(_square(x, y, 0.9), -torch.sign(a * b) * torch.minimum(a.abs(), b.abs()))


_DISTANCES: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda x, y: (x * x + y * y).sqrt() - 0.92,
    lambda x, y: ((x * x + y * y).sqrt() - 0.70).abs() - 0.22,
    _square,
    _checker,
    lambda x, y: _polygon_sides(x, y, 3, 0.5).amax(0),
    _star,
    _cross,
    lambda x, y: _stripes(x, y, x),
    lambda x, y: _stripes(x, y, y),
    lambda x, y: _stripes(x, y, (x + y) / math.sqrt(2)),
)  # in the order of CLASSES
