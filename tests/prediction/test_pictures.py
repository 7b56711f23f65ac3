"""Images in any form become what training has: the same pixels as a folder's files, and a sentence for the rest."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pcl.data import folder
from pcl.data.folder import decoded
from pcl.prediction.pictures import pictures

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 64, 3)).astype(np.uint8)


def encoded(pixels: np.ndarray, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def test_every_form_of_an_image_is_read_as_a_folders_file_is(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encoded(PIXELS))
    expected = torch.from_numpy(decoded(tmp_path / "a.png").copy())
    forms = [encoded(PIXELS), bytearray(encoded(PIXELS)), PIXELS, PIXELS.astype(np.int64), PIXELS.tolist()]
    made = pictures(forms)
    assert made.dtype == torch.uint8
    assert made.shape == (len(forms), 3, 32, 32)
    assert all(torch.equal(one, expected) for one in made)


def test_pixels_of_the_right_size_stay_as_they_are_and_sides_can_differ() -> None:
    small = PIXELS[:32, :32]
    assert np.array_equal(pictures([small])[0].permute(1, 2, 0), small)
    assert np.array_equal(pictures([encoded(small)])[0].permute(1, 2, 0), small)
    assert pictures([PIXELS, encoded(PIXELS, "JPEG")], side=64).shape == (2, 3, 64, 64)


def test_grey_transparent_and_turned_images_are_read() -> None:
    grey, clear = PIXELS[..., 0], np.concatenate([PIXELS, PIXELS[..., :1]], axis=2)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    turned = encoded(np.rot90(PIXELS).copy(), "JPEG", exif=exif, quality=100, subsampling=0)
    made = pictures([encoded(grey), encoded(clear), turned])
    assert torch.equal(made[0, 0], made[0, 1])
    upright = pictures([PIXELS])[0].float()
    assert (made[2].float() - upright).abs().mean() < 8  # but for what JPEG loses


@pytest.mark.parametrize(
    ("image", "told"),
    [
        (b"not an image", "Image 1 must be a PNG, JPEG, WEBP or BMP file"),
        (b"", "Image 1 must be a PNG"),
        (encoded(PIXELS)[:200], "Image 1 must be a PNG"),
        (encoded(PIXELS, "GIF"), "Image 1 must be a PNG"),
        ("text", "of the type str"),
        (None, "is missing"),
        (float("nan"), "is missing"),
        (7, "of the type int"),
        (PIXELS / 255, r"whole numbers from 0 to 255 of shape \(H, W, 3\), but got float64"),
        (PIXELS[..., 0], "but got uint8"),
        (np.zeros((0, 4, 3), dtype=np.uint8), "but got uint8"),
        (PIXELS.astype(int) - 1, "numbers from 0 to 255, but has -1"),
        ([[[1, 2, 3]], [[1, 2]]], "rows of equal length"),
    ],
)
def test_what_is_no_image_is_named_with_its_place(image: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        pictures([PIXELS, image])
    with pytest.raises(ValueError, match="At least one image"):
        pictures([])


def test_large_files_and_large_images_are_refused_before_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="at most 20 MiB, but has 50 MiB"):
        pictures([bytes(50 * 2**20)])
    monkeypatch.setattr(folder, "MOST_PIXELS", 40 * 64 - 1)
    monkeypatch.setattr(folder, "fitted", lambda *_: pytest.fail("its pixels were read"))
    with pytest.raises(ValueError, match="but has 64 x 40"):
        pictures([encoded(PIXELS)])


def test_many_images_keep_their_order_and_the_first_bad_one_is_named() -> None:
    many = [encoded(np.full((32, 32, 3), number, np.uint8)) for number in range(100)]  # decoded by several threads
    assert pictures(many)[:, 0, 0, 0].tolist() == list(range(100))
    many[60] = many[90] = b"no image"
    with pytest.raises(ValueError, match="Image 1060 must be"):
        pictures(many, first=1000)
