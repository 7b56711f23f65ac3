"""Random crops, flips, enlarged squares and erased squares of images."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from pcl.data.augmentation import GREY, PADDING, crop_and_flip, erase, random_resized_crop
from pcl.data.embedded import embedded
from pcl.tasks import CifarTask, Negatives
from tests.support.smoke import smoke_images


def cropped(image: Tensor, down: int, right: int, is_flipped: bool) -> Tensor:
    """Pixel by pixel."""
    result = torch.zeros_like(image)
    for row in range(32):
        for column in range(32):
            from_row = row + down
            from_column = (31 - column if is_flipped else column) + right
            if 0 <= from_row < 32 and 0 <= from_column < 32:
                result[:, row, column] = image[:, from_row, from_column]
    return result


def test_crops_and_reflections_are_those_of_a_loop(generator: torch.Generator) -> None:
    """Every result is one of the 2 x 81 crops of its image; here of images without a repeated pixel."""
    pixels = torch.stack([torch.randperm(256 * 12, generator=generator).view(3, 32, 32) % 256 for _ in range(3)])
    pixels = pixels.to(torch.uint8)
    chosen = torch.tensor([[2, 0], [1, 2]])
    results = crop_and_flip(pixels, chosen, generator)
    assert results.shape == (2, 2, 3, 32, 32)
    assert results.dtype is torch.uint8
    shifts = range(-PADDING, PADDING + 1)
    for index, result in zip(chosen.flatten(), results.flatten(0, 1), strict=True):
        padded = torch.nn.functional.pad(pixels[index], (PADDING,) * 4)
        windows = {
            (down, right, is_flipped): window.flip(-1) if is_flipped else window
            for down in shifts
            for right in shifts
            for is_flipped in (False, True)
            for window in [padded[:, 4 + down : 36 + down, 4 + right : 36 + right]]
        }
        found = [how for how, window in windows.items() if torch.equal(window, result)]
        assert len(found) == 1
        torch.testing.assert_close(result, cropped(pixels[index], *found[0]), rtol=0, atol=0)


def test_crops_are_uniform(generator: torch.Generator) -> None:
    """An image whose rows and columns number themselves tells where its crop was taken."""
    n = 5_000
    axis = torch.arange(32, dtype=torch.uint8)
    image = torch.stack([axis.view(-1, 1).expand(32, 32), axis.view(1, -1).expand(32, 32), axis.expand(32, 32)])
    results = crop_and_flip(image.unsqueeze(0), torch.zeros(n, dtype=torch.int64), generator)
    down = results[:, 0, 16, 16].long() - 16
    left, right = results[:, 1, 16, 15].long(), results[:, 1, 16, 16].long()
    is_flipped = left > right
    shift = torch.minimum(left, right) - 15
    for counts in (torch.bincount(down + PADDING), torch.bincount(shift + PADDING)):
        assert len(counts) == 2 * PADDING + 1
        assert ((counts - n / 9).abs() < 4.5 * math.sqrt(n * 8 / 81)).all()
    assert abs(is_flipped.sum() - n / 2) < 4.5 * math.sqrt(n / 4)
    assert abs(torch.corrcoef(torch.stack([down, shift]).double())[0, 1]) < 4.5 / math.sqrt(n)


def test_a_resized_crop_is_an_enlarged_square_inside_the_image(generator: torch.Generator) -> None:
    """Check it on an image whose bytes say where they are, up to rounding."""
    ramp = torch.arange(32, dtype=torch.float64) * 8
    image = torch.stack([ramp.view(-1, 1).expand(32, 32), ramp.expand(32, 32), ramp.flip(0).expand(32, 32)])
    results = random_resized_crop(image.to(torch.uint8).unsqueeze(0), torch.zeros(200, dtype=torch.int64), generator)
    assert (results[:, 1].long() + results[:, 2].long() - 248).abs().max() <= 1
    inner = results[:, :, 8:24, 8:24].double()  # the image's own edge is repeated outside of it
    down, right = inner[:, 0, :, 0].diff(dim=1).mean(1) / 8, inner[:, 1, 0].diff(dim=1).mean(1) / 8
    torch.testing.assert_close(down, right.abs(), rtol=0, atol=0.02)  # squares, some of them flipped
    top = inner[:, 0, 0, 0] / 8 + 0.5 - 8.5 * down
    assert (top > -0.4).all()
    assert (top + 32 * down < 32.4).all()
    expected = (top.view(-1, 1) + (torch.arange(8, 24) + 0.5) * down.view(-1, 1) - 0.5) * 8
    assert (expected - inner[:, 0, :, 0]).abs().max() < 2


def test_resized_crops_have_uniform_areas_and_places(generator: torch.Generator) -> None:
    n = 5_000
    ramp = torch.arange(32, dtype=torch.uint8) * 8
    images = ramp.expand(1, 3, 32, 32)
    results = random_resized_crop(images, torch.zeros(n, dtype=torch.int64), generator)[:, 0, 0].double() / 8
    slope = (results[:, 23] - results[:, 8]) / 15
    area = slope.abs() ** 2
    assert area.min() > 0.18
    assert area.max() < 1.03
    assert stats.kstest(area, stats.uniform(0.2, 0.8).cdf).statistic < 0.04
    assert abs((slope < 0).sum() - n / 2) < 4.5 * math.sqrt(n / 4)
    is_small = area < 0.7
    left = (results[:, 15] + results[:, 16] + 1) / 2 - 16 * slope.abs()
    place = (left / (32 - 32 * slope.abs()))[is_small]
    assert stats.kstest(place, "uniform").statistic < 0.05


@pytest.mark.parametrize("how", ["crop_flip", "random_resized_crop"])
def test_the_task_augments_all_three_and_only_if_asked(how: str) -> None:
    data = embedded(n=200, n_train=300).images
    plain, augmented = (
        CifarTask(smoke_images(task__augmentation=chosen).task, data, [0, 5])  # type: ignore[arg-type]
        for chosen in ("none", how)
    )
    before, after = (task.draw(8, Negatives.DRAWN, 3, torch.Generator().manual_seed(1)) for task in (plain, augmented))
    for a, b in zip(before, after, strict=True):
        assert a.shape == b.shape
        assert not torch.equal(a, b)
    assert augmented.draw(4, Negatives.IN_BATCH, 3, torch.Generator()).negatives.shape == (2, 4, 0, 3, 32, 32)


def test_squares_are_erased_around_every_pixel_alike(generator: torch.Generator) -> None:
    n, side = 5_000, 16
    images = torch.full((n, 3, 32, 32), GREY + 1, dtype=torch.uint8)
    is_erased = erase(images, side, generator) == GREY
    assert (is_erased == is_erased[:, :1]).all()  # in all colours
    heights, widths = (is_erased[:, 0].any(dim).sum(-1) for dim in (2, 1))
    assert (is_erased[:, 0].sum((1, 2)) == heights * widths).all()  # rectangles
    assert {int(size) for size in heights} == set(range(side // 2, side + 1))  # cut off at the borders
    # A pixel in the middle is within reach of side x side of the 32 x 32 middles; the corner of a quarter of these.
    shares = is_erased[:, 0].double().mean(0)
    for place, expected in (((16, 16), side**2), ((0, 31), (side // 2 + 1) * (side // 2))):
        expected_share = expected / 32**2
        assert abs(shares[place] - expected_share) < 4 * math.sqrt(expected_share / n)
