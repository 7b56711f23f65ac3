import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import spearmanr
from torch import Tensor

from pcl.data import ImageSet, cache_file, embedded, folds, load, resolve, save, split
from pcl.data.authors_folds import Origin, authors_crops, authors_folds, image_split
from pcl.data.embedded import CLASSES, Cause, Embedded, vote_probabilities, write_sheet
from tests.support.pace import within

ROOT = Path(__file__).parents[2]


def small(n: int = 6, name: str = "small", **changes: Any) -> ImageSet:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (n, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.arange(n) % 2
    values = {
        "classes": ("a", "b"), "images": pixels, "hard_labels": labels,
        "soft_labels": torch.nn.functional.one_hot(labels, 2).float(), **changes,
    }  # fmt: skip
    return ImageSet(name, **values)


# The set and its file


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ("a",)}, "at least two classes must be given, but got 1"),
        ({"images": torch.zeros(0, 3, 32, 32, dtype=torch.uint8)}, "at least one image"),
        (
            {"images": torch.zeros(6, 32, 32, 3, dtype=torch.uint8)},
            r"uint8 of shape \(N, 3, S, S\), but got uint8 \(",
        ),
        ({"images": torch.zeros(6, 3, 32, 32)}, "but got float32"),
        ({"hard_labels": torch.zeros(5, dtype=torch.int64)}, r"hard_labels must be int64 of shape \(6,\)"),
        ({"hard_labels": torch.tensor([0, 1, 2, 0, 1, -1])}, r"in 0..1, but label 2 is 2 \(2 of 6 lie outside\)"),
        ({"soft_labels": torch.ones(6, 3) / 3}, r"float32 of shape \(6, 2\), but got float32 \(6, 3\)"),
        ({"soft_labels": torch.ones(6, 2, dtype=torch.float64) / 2}, "but got float64"),
        ({"soft_labels": torch.full((6, 2), 0.4)}, r"sum to 1 in every row, but row 0 sums to 0.8 \(6 of 6"),
        ({"soft_labels": torch.tensor([[1.5, -0.5]] * 6)}, "must not be negative, but row 0"),
        ({"soft_labels": torch.tensor([[1.0, 0.0]] * 5 + [[torch.nan, 1.0]])}, "must not be negative, but row 5"),
        ({"train_labels": torch.zeros(1, dtype=torch.int64)}, "train_labels must be int64 of shape"),
    ],
)
def test_image_set_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**changes)


def test_fingerprint_is_of_the_content() -> None:
    first = small()
    assert first.fingerprint == small(name="other").fingerprint
    assert len(first.fingerprint) == 16
    pixels = first.images.clone()
    pixels[3, 1, 5, 7] ^= 1
    train = {"train_images": pixels, "train_labels": first.hard_labels}
    others = [small(images=pixels), small(classes=("a", "c")), small(hard_labels=1 - first.hard_labels), small(**train)]
    assert len({first.fingerprint, *(other.fingerprint for other in others)}) == 5
    assert not first.has_train
    assert others[-1].has_train


def test_cache_round_trip(tmp_path: Path) -> None:
    images, path = small(), cache_file("small", tmp_path / "deep")
    save(images, path)
    again = load(path)
    assert (again.name, again.classes, again.fingerprint) == (images.name, images.classes, images.fingerprint)
    assert torch.equal(again.images, images.images)
    assert torch.equal(again.soft_labels, images.soft_labels)
    assert [file.name for file in path.parent.iterdir()] == ["small.pt"]


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _changed(content: bytes) -> bytes:
    middle = len(content) // 2  # a pixel: the archive has nothing else of this size
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [_cut, _changed, lambda _: b"", lambda _: b"not an archive", lambda c: c[:-1]])
def test_damaged_cache_is_named_and_not_used(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = cache_file("cifar10h", tmp_path)
    save(small(), path)
    path.write_bytes(damage(path.read_bytes()))
    for text in ("auto", "cifar10h", str(path)):
        with pytest.raises(ValueError, match=r"cifar10h.pt is damaged or not an image set .*delete it"):
            resolve(text, tmp_path)


def test_other_archive_is_not_a_cache(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"weight": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match="damaged or not an image set"):
        load(path)
    with pytest.raises(FileNotFoundError, match="There is no image set at"):
        load(tmp_path / "none.pt")


def test_interrupted_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = cache_file("small", tmp_path)
    save(small(), path)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", stop)
    with pytest.raises(KeyboardInterrupt):
        save(small(n=8), path)
    assert len(load(path).images) == 6
    assert [file.name for file in tmp_path.iterdir()] == ["small.pt"]


# Folds

FOLD_DIGESTS = ["43977ca6c6a69aad", "b4f7dba2a76c9778", "2120e2114bd7ab34", "64e1f9e8cf36ded1", "85eb4a123b75f3d4"]


def test_folds_never_change() -> None:
    """The hashes that define our own folds of 10,000 images."""
    digests = [hashlib.sha256(part.numpy().astype("<i8").tobytes()).hexdigest()[:16] for part in folds(10_000, 0)]
    assert digests == FOLD_DIGESTS
    assert ", ".join(FOLD_DIGESTS) in (ROOT / "docs/images.md").read_text()


@pytest.mark.parametrize("n", [5, 13, 2000])
def test_folds_divide(n: int) -> None:
    parts = folds(n)
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(n))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert n < 100 or not torch.equal(parts[0], folds(n, seed=1)[0])
    for fold in range(5):
        train, validation, test = split(n, fold)
        assert torch.equal(train, torch.cat([parts[(fold + step) % 5] for step in range(3)]).sort().values)
        assert torch.equal(validation, parts[(fold + 3) % 5])
        assert torch.equal(test, parts[(fold + 4) % 5])


def test_the_authors_folds_and_crops() -> None:
    """Five sets of 2,000 that cover CIFAR-10H once, in the authors' order, and fractions as the paper draws them."""
    parts = authors_folds()
    assert [len(part) for part in parts] == [2_000] * 5
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(10_000))
    assert parts[0][:3].tolist() == [1221, 1947, 3844]
    crops = authors_crops()
    assert (crops.shape, crops.dtype) == ((2_000,), torch.float64)
    assert 0.25 <= float(crops.min()) < float(crops.max()) <= 1
    assert abs(float(crops.mean()) - 0.625) < 4 * 0.75 / math.sqrt(12 * 2_000)
    readme = (ROOT / "pcl/data/authors/README.md").read_text()
    for file in (ROOT / "pcl/data/authors").glob("*.npy"):
        assert hashlib.sha256(file.read_bytes()).hexdigest() in readme


def test_the_authors_folds_are_of_cifar10h_alone() -> None:
    n = 10_000
    labels = torch.arange(n) % 2
    images, shares = torch.empty(1, 3, 32, 32, dtype=torch.uint8).expand(n, 3, 32, 32), torch.eye(2)[labels]
    whole, other = (ImageSet(name, ("a", "b"), images, shares, labels) for name in ("cifar10h", "cifar10h-mine"))
    part = ImageSet("cifar10h", ("a", "b"), images[:100], shares[:100], labels[:100])
    parts = authors_folds()
    for fold in range(5):
        train, validation, test = image_split(whole, fold, Origin.AUTHORS)
        assert torch.equal(train, torch.cat([parts[(fold + step) % 5] for step in range(3)]))  # not sorted
        assert torch.equal(validation, parts[(fold + 3) % 5])
        assert torch.equal(test, parts[(fold + 4) % 5])
    for data, origin in ((whole, Origin.OWN), (other, Origin.AUTHORS), (part, Origin.AUTHORS)):
        ours = split(len(data.images), 1)
        assert all(torch.equal(a, b) for a, b in zip(image_split(data, 1, origin), ours, strict=True))


def test_folds_refuse() -> None:
    with pytest.raises(ValueError, match=r"`n >= 5` images must be given for 5 folds, but got 4"):
        folds(4)
    with pytest.raises(ValueError, match=r"`0 <= fold <= 4` must hold, but got 5"):
        split(10, 5)


# The embedded set


def entropy(shares: Tensor) -> Tensor:
    return torch.special.entr(shares.double()).sum(1)


@pytest.fixture(scope="module")
def drawn() -> Embedded:
    return embedded()


def test_embedded_is_deterministic(drawn: Embedded) -> None:
    state = torch.get_rng_state()
    assert drawn.images.fingerprint == "70f3f2065ca246cd"
    assert embedded(n=30, seed=1, n_train=10).images.fingerprint != embedded(n=30, n_train=10).images.fingerprint
    assert torch.equal(torch.get_rng_state(), state)
    assert drawn.images.classes == CLASSES
    assert len(drawn.images.images) == len(drawn.images.train_images) == 2000
    assert drawn.images.hard_labels.bincount().tolist() == [200] * 10
    assert drawn.cause.bincount().min() > 600
    # Every image of a kind is another one.
    assert len(drawn.images.images.flatten(1).unique(dim=0)) == 2000
    assert not torch.equal(drawn.images.images, drawn.images.train_images)


def test_ambiguity_is_what_annotators_see(drawn: Embedded) -> None:
    seen = entropy(drawn.images.soft_labels)
    assert spearmanr(seen, drawn.ambiguity).statistic > 0.9
    for cause in Cause:
        chosen = drawn.cause == cause
        assert spearmanr(seen[chosen], drawn.ambiguity[chosen]).statistic > 0.9
    # The votes have the law that is written down.
    votes = (drawn.images.soft_labels.double() * 50).round()
    own = votes.gather(1, drawn.images.hard_labels.unsqueeze(1)).squeeze(1)
    expected, variance = 50 * (1 - drawn.ambiguity / 2), 50 * drawn.ambiguity / 2 * (1 - drawn.ambiguity / 2)
    assert abs(float((own - expected).sum() / variance.sum().sqrt())) < 4
    assert (votes.sum(1) == 50).all()
    assert ((votes > 0).sum(1) <= 2).all()
    shares = vote_probabilities(torch.tensor([0]), torch.tensor([1]), torch.tensor([0.5], dtype=torch.float64))
    assert shares[0, :3].tolist() == [0.75, 0.25, 0.0]


def test_classes_can_be_learned_from_clear_images(drawn: Embedded) -> None:
    """The nearest of 2,000 other images, by the cosine of halved grey values, has the same figure."""

    def features(images: Tensor) -> Tensor:
        grey = images.float().mean(1, keepdim=True)
        grey = grey - grey.flatten(1).median(1).values.view(-1, 1, 1, 1)
        return torch.nn.functional.normalize(torch.nn.functional.avg_pool2d(grey, 2).flatten(1), dim=1)

    nearest = (features(drawn.images.images) @ features(drawn.images.train_images).T).argmax(1)
    is_right = drawn.images.train_labels[nearest] == drawn.images.hard_labels
    clear, unclear = drawn.ambiguity < 0.1, drawn.ambiguity > 0.7
    assert is_right[clear].double().mean() > 0.8
    for cause in Cause:
        assert is_right[unclear & (drawn.cause == cause)].double().mean() < 0.7
    by_class = [is_right[clear & (drawn.images.hard_labels == label)].double().mean() for label in range(10)]
    assert min(by_class) > 0.5


def test_embedded_is_fast() -> None:
    n_threads = torch.get_num_threads()
    within(2, lambda: embedded(n=2_500, n_train=10))  # 0.75 s on one core
    assert torch.get_num_threads() == n_threads


def test_embedded_refuses() -> None:
    with pytest.raises(ValueError, match=r"`n >= 10` must hold, but got 9"):
        embedded(n=9)


def test_picture_is_the_one_that_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "sheet.png"
    write_sheet(path)
    assert path.stat().st_size < 60_000
    with Image.open(path) as drawn, Image.open(ROOT / "docs/pictures/embedded.png") as kept:
        assert np.array_equal(np.asarray(drawn.convert("RGB")), np.asarray(kept.convert("RGB")))
