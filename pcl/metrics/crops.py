"""Crops of the centre of images, enlarged to the old size: images with less information."""
# Axes: N images, C channels, H rows, W columns

import torch
from torch import Tensor

_SMALLEST, _LARGEST = 0.25, 1.0  # side of a crop over side of its image, from the paper


def draw_fractions(n: int, generator: torch.Generator) -> Tensor:
    """Draw fractions for `centre_crop_and_resize` from Unif[0.25, 1], (N,), float64, on the generator's device.

    Example:
        >>> draw_fractions(3, torch.Generator().manual_seed(0)).shape
        torch.Size([3])
    """
    if n < 1:
        raise ValueError(f"`n >= 1` must hold, but got {n}.")
    shares = torch.rand(n, dtype=torch.float64, generator=generator, device=generator.device)
    return _SMALLEST + (_LARGEST - _SMALLEST) * shares


def centre_crop_and_resize(images: Tensor, fractions: Tensor) -> Tensor:
    """Crop the centre of square images and enlarge it to the old size, bilinearly.

    Of an image with H rows and columns, side = max(1, round(fraction H)) are kept, from row round((H - side) / 2) on;
    both round halves to even, as torchvision does. Output row i lies at (i + 1/2) side / H - 1/2 of the crop's rows, at
    least 0, and is blended from the two rows around it; columns likewise. These are `center_crop` and `resize` of
    torchvision; its antialias changes nothing, as no crop is shrunk.

    The result is not rounded to whole numbers: the released code resizes images that are already scaled and shifted,
    and those steps commute with blending. For H = 32 all weights are multiples of 1/64, so that float32 holds each
    number exactly and every device returns the same. Limits: fraction 1 returns the image.

    Args:
        images: (N, C, H, H), uint8; the result is float32, from 0 to 255.
        fractions: Side of the crop over side of the image, (N,), 0 < fraction <= 1.

    Example:
        >>> image = torch.arange(4, dtype=torch.uint8).repeat(4, 1)[None, None]
        >>> centre_crop_and_resize(image, torch.tensor([0.5]))[0, 0, 0].tolist()
        [1.0, 1.25, 1.75, 2.0]
    """
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[2] != images.shape[3]:
        got = f"{tuple(images.shape)}, {str(images.dtype).removeprefix('torch.')}"
        raise ValueError(f"Images must be (N, C, H, H), uint8, but got {got}.")
    if fractions.shape != images.shape[:1]:
        raise ValueError(f"Each image needs one fraction, but got {tuple(fractions.shape)} for {len(images)}.")
    fractions = fractions.to(images.device)
    if not ((fractions > 0) & (fractions <= 1)).all():
        worst = fractions[~((fractions > 0) & (fractions <= 1))][0].item()
        raise ValueError(f"`0 < fraction <= 1` must hold for every image, but got {worst:g}.")
    low, high, weight = _lines(fractions, images.shape[2])
    rows = _blend(images, low[:, None, :, None], high[:, None, :, None], weight[:, None, :, None], dim=2)
    return _blend(rows, low[:, None, None, :], high[:, None, None, :], weight[:, None, None, :], dim=3)


def _lines(fractions: Tensor, side: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the two lines of an image that each output line blends, and the weight of the second, (N, side)."""
    crop_side = (fractions * side).round().clamp(min=1).float().unsqueeze(1)
    offset = ((side - crop_side) / 2).round()
    center = torch.arange(side, device=fractions.device) + 0.5
    place = (center * (crop_side / side) - 0.5).clamp(min=0)
    low = place.floor()
    high = torch.minimum(low + 1, crop_side - 1)
    return (low + offset).long(), (high + offset).long(), place - low


def _blend(images: Tensor, low: Tensor, high: Tensor, weight: Tensor, dim: int) -> Tensor:
    first, second = (images.gather(dim, index.expand_as(images)) for index in (low, high))
    return first * (1 - weight) + second * weight
