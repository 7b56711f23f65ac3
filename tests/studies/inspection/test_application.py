"""Encoders on folders of any size: near duplicates and outliers against brute force, pixels a batch at a time."""

import math
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from pcl.distributions import VonMisesFisher
from pcl.metrics.retrieval import rejection_curve
from pcl.studies.inspection.application import Applied, applied, neighbourhood
from pcl.studies.inspection.image_stream import ImageFolder
from tests.studies.inspection.test_findings import threshold_by_integration

N, DIM = 70, 4


def write_images(folder: Path, n: int, side: int = 8) -> None:
    """Write n images whose pixels all have the image's number as their value."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(n):
        Image.fromarray(np.full((side, side, 3), number, np.uint8)).save(folder / f"{number:03}.png")


def by_brightness(images: Tensor) -> VonMisesFisher:
    """Posteriors in the plane, by the images' brightness."""
    angle = images.double().mean((1, 2, 3)) / 40
    return VonMisesFisher(torch.stack([angle.cos(), angle.sin()], dim=1), 1 + angle)


@pytest.fixture
def found(generator: torch.Generator) -> Applied:
    """Crowded and lonely directions, some of them equal, with kappa from 5 to 5,000."""
    mu = torch.nn.functional.normalize(torch.randn(N, DIM, generator=generator), dim=-1)
    mu[10:13] = mu[3]
    kappa = 5 * 1000 ** torch.rand(N, generator=generator)
    files = [Path("folder") / "abc"[i % 3] / f"{i}.png" for i in range(N + 1)]
    return Applied(ImageFolder(Path("folder"), files), list(range(1, N + 1)), [0], mu, kappa)


def test_duplicates_and_outliers_against_brute_force(found: Applied) -> None:
    near = neighbourhood(found, lambda _: None)
    mu = found.mu.double().numpy()
    caps = [math.acos(threshold_by_integration(kappa, DIM)) for kappa in found.kappa.tolist()]
    assert found.credible_angle.tolist() == pytest.approx(caps, rel=1e-4)
    angles = np.arccos(np.clip(mu @ mu.T, -1, 1))
    np.fill_diagonal(angles, np.inf)
    pairs, lonely = set(), {}
    for i in range(N):
        inside = [j for j in range(N) if angles[i, j] <= caps[i] + 1e-7]
        if not inside:
            lonely[i] = angles[i].min() / caps[i]
        nearest = int(near.nearest[i])
        assert angles[i, nearest] == pytest.approx(angles[i].min(), abs=1e-7)
        if nearest in inside and angles[i, nearest] <= caps[nearest] + 1e-7:
            pairs.add((min(i, nearest), max(i, nearest)))
    assert near.outliers.tolist() == sorted(lonely, key=lambda i: -lonely[i])
    assert 5 < len(lonely) < N - 5
    duplicates = [tuple(pair) for pair in near.duplicates.tolist()]
    assert set(duplicates) == pairs
    assert len(duplicates) == len(pairs) > 5
    assert {(3, 10), (3, 11), (3, 12)} == set(duplicates[:3])  # copies come first
    assert [angles[pair] for pair in duplicates] == sorted(angles[pair] for pair in duplicates)
    labels = torch.arange(1, N + 1) % 3
    assert near.curve is not None
    curve = rejection_curve(found.mu, labels, found.kappa)
    assert torch.equal(near.curve.recall, curve.recall)
    assert near.curve.area == curve.area


def test_classes_are_subfolders_that_hold_every_image(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_images(tmp_path / "set" / name / "deeper", 2)
    result = applied(by_brightness, ImageFolder.of(tmp_path / "set"), 8, lambda _: None)
    assert result.classes == ["a", "a", "b", "b"]
    assert result.names[2] == "b/deeper/000.png"
    only = applied(by_brightness, ImageFolder.of(tmp_path / "set" / "a"), 8, lambda _: None)
    assert only.classes == []
    write_images(tmp_path / "set", 1)
    beside = applied(by_brightness, ImageFolder.of(tmp_path / "set"), 8, lambda _: None)
    assert beside.classes == []
    assert neighbourhood(beside, lambda _: None).curve is None


def test_pixels_are_held_a_batch_at_a_time(tmp_path: Path) -> None:
    write_images(tmp_path / "set", 60)
    (tmp_path / "set" / "030.png").write_bytes(b"none")
    alive: weakref.WeakSet[Tensor] = weakref.WeakSet()
    sizes, held = list[int](), list[int]()

    def encode(images: Tensor) -> VonMisesFisher:
        alive.add(images)
        sizes.append(len(images))
        held.append(sum(len(batch) for batch in alive))
        return by_brightness(images)

    done = list[int]()
    folder = ImageFolder.of(tmp_path / "set")
    result = applied(encode, folder, 8, done.append, batch_size=5)
    assert sizes == [5] * 6 + [4] + [5] * 5
    assert max(held) <= 10
    assert done == list(range(5, 61, 5))
    assert result.unreadable == [30]
    whole = applied(by_brightness, folder, 8, lambda _: None, batch_size=1000)
    assert torch.equal(result.mu, whole.mu)
    assert result.by_ambiguity.tolist() == list(range(59))
    assert result.kappa[0] < result.kappa[58]


def test_a_diverged_encoder_and_a_folder_without_images_are_refused(tmp_path: Path) -> None:
    write_images(tmp_path / "set", 3)
    folder = ImageFolder.of(tmp_path / "set")

    def diverged(images: Tensor) -> VonMisesFisher:
        posterior = by_brightness(images)
        return VonMisesFisher(posterior.mu, posterior.kappa * math.nan, validate_args=False)

    with pytest.raises(ValueError, match="NaN or infinity for 3 of 3 images"):
        applied(diverged, folder, 8, lambda _: None)
    for file in folder.files:
        file.write_text("no image")
    with pytest.raises(ValueError, match=r"None of the 3 files in .*set can be read"):
        applied(by_brightness, folder, 8, lambda _: None)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".hidden.png").touch()
    for path, message in ((tmp_path / "empty", "is empty"), (tmp_path / "no", "absent"), (folder.files[0], "a file")):
        with pytest.raises(ValueError, match=message):
            ImageFolder.of(path)
