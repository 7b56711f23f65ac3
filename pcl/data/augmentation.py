"""Random crops, flips and erased squares of images that stay on their device as bytes.

Axes: N images, S pixels of a side; then channels, rows and columns of pixels.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from pcl.data.images import SIDE

PADDING = 4  # black pixels on every side of 32, as usual for CIFAR-10; in proportion for larger images
GREY = 120  # about the mean byte
_LEAST_AREA = 0.2  # of a resized crop, as usual for CIFAR-10 in contrastive learning


def crop_and_flip(images: Tensor, chosen: Tensor, generator: torch.Generator) -> Tensor:
    """Return chosen images, each padded, cropped to its size at a random place, and flipped with probability 1/2.

    It does not synchronise with the device, so it can be captured in a CUDA graph. Images are uint8 (N, 3, S, S) and
    indices int64 (...), both on the generator's device; the result is uint8 (..., 3, S, S).
    """
    device, index, side = images.device, chosen.reshape(-1), images.shape[-1]
    padding = PADDING * side // SIDE
    shift = torch.randint(-padding, padding + 1, (2, len(index), 1), generator=generator, device=device)
    is_flipped = torch.randint(2, (len(index), 1), generator=generator, device=device) == 1
    axis = torch.arange(side, device=device)
    rows = (axis + shift[0]).view(-1, 1, side, 1)
    columns = torch.where(is_flipped, side - 1 - axis, axis) + shift[1]
    columns = columns.view(-1, 1, 1, side)
    channels = torch.arange(3, device=device).view(1, 3, 1, 1)
    last = side - 1
    pixels = images[index.view(-1, 1, 1, 1), channels, rows.clamp(0, last), columns.clamp(0, last)]
    is_inside = (rows >= 0) & (rows <= last) & (columns >= 0) & (columns <= last)
    return (pixels * is_inside).view(*chosen.shape, 3, side, side)


def random_resized_crop(images: Tensor, chosen: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random square of each chosen image, enlarged to the image's size, flipped with probability 1/2.

    The square has 20% to 100% of the image's area, uniformly, and lies anywhere in it; pixels are blended bilinearly.
    It is the usual crop of contrastive learning. Arguments and result are as in `crop_and_flip`, and it can be captured
    as well.
    """
    device, index, side = images.device, chosen.reshape(-1), images.shape[-1]
    if not len(index):  # `grid_sample` refuses an empty batch
        return images[chosen]
    area, *place = torch.rand((3, len(index), 1), generator=generator, device=device)
    share = (_LEAST_AREA + (1 - _LEAST_AREA) * area).sqrt()
    is_flipped = torch.randint(2, (len(index), 1), generator=generator, device=device)
    middle = [(2 * part - 1) * (1 - share) for part in place]  # the image is from -1 to 1
    axis = (2 * torch.arange(side, device=device) + 1) / side - 1
    columns = (share * (1 - 2 * is_flipped) * axis + middle[0]).unsqueeze(1).expand(-1, side, -1)
    rows = (share * axis + middle[1]).unsqueeze(2).expand(-1, -1, side)
    where = torch.stack([columns, rows], -1)
    pixels = F.grid_sample(images[index].float(), where, padding_mode="border", align_corners=False)
    return pixels.round().to(torch.uint8).view(*chosen.shape, 3, side, side)


def erase(images: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Return images with a grey square of side `side` around a random pixel of each, cut at the borders ("cutout")."""
    n = images.shape[-1]
    middle = torch.randint(n, (2, len(images), 1), generator=generator, device=images.device)
    offset = torch.arange(n, device=images.device) - middle + side // 2
    rows, columns = (offset >= 0) & (offset < side)
    is_erased = rows.view(-1, 1, n, 1) & columns.view(-1, 1, 1, n)
    return images.masked_fill(is_erased, GREY)
