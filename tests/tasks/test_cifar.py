"""The image experiment: how pairs are drawn, and what encoders are judged on."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pcl.data.authors_folds import Origin, authors_crops, authors_folds
from pcl.data.folds import split
from pcl.data.images import ImageSet
from pcl.encoders import ResNetEncoder
from pcl.tasks import Batch, CifarTask, Labels, NegativePool, Negatives, NegativeWeights
from tests.support.smoke import smoke_images

N, C = 50, 3


def numbered(n_train: int = 0, n: int = N) -> ImageSet:
    """Images whose first byte is their number, with shares that are far from even."""
    generator = torch.Generator().manual_seed(0)
    shares = torch.softmax(2 * torch.randn(n, C, generator=generator), -1)
    shares[0], shares[1] = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 1.0])
    images = torch.arange(n, dtype=torch.uint8).view(n, 1, 1, 1).expand(n, 3, 32, 32).contiguous()
    return ImageSet(
        "numbered", ("a", "b", "c"), images, shares, shares.argmax(1), images[:n_train], shares.argmax(1)[:n_train]
    )


def numbers(images: Tensor) -> Tensor:
    return images[..., 0, 0, 0].long()


def drawn(task: CifarTask) -> Batch:
    generator = torch.Generator().manual_seed(1)
    batches = [task.draw(1280, Negatives.DRAWN, 2, generator) for _ in range(10)]
    return Batch(*(torch.cat(parts, dim=1) for parts in zip(*batches, strict=True)))


@pytest.mark.parametrize("labels", [Labels.SOFT, Labels.HARD])
@pytest.mark.parametrize("weights", list(NegativeWeights))
def test_pairs_follow_their_formulas(labels: Labels, weights: NegativeWeights) -> None:
    """Given the anchor, P(x+) = sum_c P(c|x) P(c|x+) / sum_x' P(c|x'), and negatives likewise by 1 - P(c|x-)."""
    data = numbered()
    task = CifarTask(CifarTask.Config(labels=labels, negative_weights=weights), data, [0])
    train = split(N, 0).train
    shares = data.soft_labels[train].double()
    if labels is Labels.HARD:
        shares = torch.nn.functional.one_hot(shares.argmax(1), C).double()
    batch = drawn(task)
    place = torch.full((N,), -1)
    place[train] = torch.arange(len(train))
    anchor, positive, negative = (place[numbers(part[0])] for part in batch)
    assert anchor.min() >= 0  # of the training part only
    to_positive = shares @ (shares / shares.sum(0)).T
    unlike = 1 - shares
    to_negative = shares @ (unlike / unlike.sum(0)).T
    if weights is NegativeWeights.UNLIKE_ANCHOR:
        to_negative = 1 - shares @ shares.T
        to_negative /= to_negative.sum(1, keepdim=True)
    for found, expected in ((positive, to_positive), (negative[:, 0], to_negative), (negative[:, 1], to_negative)):
        counts = torch.bincount(found, minlength=len(train)).double()
        mean = expected[anchor].sum(0)
        spread = (expected[anchor] * (1 - expected[anchor])).sum(0).sqrt()
        assert ((counts - mean).abs() <= 4.5 * spread + 1e-9).all()


def test_positives_depend_on_the_anchor() -> None:
    data = numbered()
    batch = drawn(CifarTask(CifarTask.Config(), data, [0]))
    of_first = data.soft_labels[numbers(batch.positive[0])][numbers(batch.anchor[0]) == int(split(N, 0).train[0])]
    same = data.soft_labels[split(N, 0).train[0]]
    assert (of_first.mean(0) @ same) > (data.soft_labels.mean(0) @ same)


def test_five_seeds_have_each_fold_once() -> None:
    n, seeds = 52, (4, 5, 6, 7, 8)  # sets of 11 and of 10
    task = CifarTask(CifarTask.Config(), numbered(n=n), seeds)
    batch = task.draw(64, Negatives.DRAWN, 2, torch.Generator().manual_seed(1))
    for run, fold in enumerate((4, 0, 1, 2, 3)):
        train = set(split(n, fold).train.tolist())
        for part in batch:
            assert set(numbers(part[run]).flatten().tolist()) <= train
    encoder = ResNetEncoder(ResNetEncoder.Config(width=2), seeds)
    together = [task.evaluate(encoder), task.final(encoder)]
    for run, seed in enumerate(seeds):
        alone = CifarTask(CifarTask.Config(), numbered(n=n), [seed])
        own = ResNetEncoder(ResNetEncoder.Config(width=2), [seed])
        for theirs, ours in zip(together, (alone.evaluate(own), alone.final(own)), strict=True):
            assert theirs[run] == pytest.approx(ours[0], rel=1e-5)
    assert len({metrics["val/kappa_mean"] for metrics in together[0]}) == 5


def test_sources_of_training_images() -> None:
    with pytest.raises(ValueError, match="needs separate training images, which 'numbered' does not have"):
        CifarTask(CifarTask.Config(labels=Labels.CIFAR10_HARD), numbered(), [0])
    task = CifarTask(CifarTask.Config(labels=Labels.CIFAR10_HARD), numbered(n_train=20), [0])
    assert len(task.folds[0].images) == 20
    assert task.draw(8, Negatives.IN_BATCH, 4, torch.Generator()).negatives.shape == (1, 8, 0, 3, 32, 32)


def test_too_few_images() -> None:
    with pytest.raises(ValueError, match=r"'numbered' must have at least 15 images, 3 for each of 5 folds, but has 14"):
        CifarTask(CifarTask.Config(), numbered(n=14), [0])
    CifarTask(CifarTask.Config(), numbered(n=15), [0])


def certain(labels: Tensor) -> ImageSet:
    """Images with one label each."""
    images = numbered(n=len(labels)).images
    return ImageSet("certain", ("a", "b"), images, torch.nn.functional.one_hot(labels, 2).float(), labels)


@pytest.mark.parametrize("weights", list(NegativeWeights))
@pytest.mark.parametrize("n", [250, 700])  # fewer training images than places of eight bits, and more
def test_places_modulo_256_are_of_a_draw_among_all(n: int, weights: NegativeWeights) -> None:
    """P(place r) is the sum of the weights at r, r + 256, ...; first_256 has another law, by the weights at r alone."""
    shares = torch.softmax(4 * torch.randn(n, 2, generator=torch.Generator().manual_seed(0)), -1)
    data = replace(certain(torch.arange(n) % 2), soft_labels=shares)
    config = CifarTask.Config(negative_weights=weights, negative_pool=NegativePool.MODULO_256)
    fold = CifarTask(config, data, [0]).folds[0]
    anchor, _, negative = fold.places(2_000, 64, torch.Generator().manual_seed(1))
    shares = fold.shares.double()
    unlike = 1 - shares
    by_anchor = shares @ (unlike / unlike.sum(0)).T
    if weights is NegativeWeights.UNLIKE_ANCHOR:
        by_anchor = 1 - shares @ shares.T
        by_anchor /= by_anchor.sum(1, keepdim=True)
    expected = torch.zeros(len(shares), 256, dtype=torch.float64)
    expected.index_add_(1, torch.arange(len(shares)) % 256, by_anchor)
    chances = expected[anchor]
    mean, deviation = 64 * chances.sum(0), (64 * chances * (1 - chances)).sum(0).sqrt()
    counts = torch.bincount(negative.flatten(), minlength=256).double()
    assert len(counts) == 256
    assert ((counts - mean).abs() <= 4.5 * deviation + 1e-9).all()


def test_places_modulo_256_can_be_of_the_anchors_own_class() -> None:
    """With hard labels of ten equal classes, 10% of those draws that are not from the first 256 images themselves."""
    labels = torch.randperm(2_000, generator=torch.Generator().manual_seed(0)) % 10
    names = tuple("abcdefghij")
    one_hot = torch.nn.functional.one_hot(labels, 10).float()
    data = ImageSet("ten", names, torch.zeros(2_000, 3, 32, 32, dtype=torch.uint8), one_hot, labels)
    same = {}
    for pool in (NegativePool.ALL, NegativePool.MODULO_256):
        fold = CifarTask(CifarTask.Config(labels=Labels.HARD, negative_pool=pool), data, [0]).folds[0]
        anchor, _, negative = fold.places(2_000, 32, torch.Generator().manual_seed(1))
        of_image = fold.shares.argmax(1)
        same[pool] = (of_image[negative] == of_image[anchor].unsqueeze(1)).double().mean().item()
    assert same[NegativePool.ALL] == 0
    assert same[NegativePool.MODULO_256] == pytest.approx(0.1 * (1 - 256 / 1_200), abs=0.01)


def test_a_class_alone_has_no_negatives() -> None:
    task = CifarTask(CifarTask.Config(negative_pool=NegativePool.MODULO_256), certain(torch.zeros(600).long()), [0])
    with pytest.raises(ValueError, match=r"all images that they are drawn from are of 'a' \(`task.negative_pool=mod"):
        task.draw(8, Negatives.DRAWN, 1, torch.Generator())


def test_a_class_without_negatives_is_named() -> None:
    """Records of `reference` from before version 4 draw from the first 256 images alone, which can be of one class."""
    data = certain(torch.arange(600) // 500)
    for pool in (NegativePool.ALL, NegativePool.MODULO_256):
        CifarTask(CifarTask.Config(negative_pool=pool), data, [0]).draw(8, Negatives.DRAWN, 1, torch.Generator())
    task = CifarTask(CifarTask.Config(negative_pool=NegativePool.FIRST_256), data, [0])
    assert task.draw(8, Negatives.IN_BATCH, 1, torch.Generator()).negatives.shape[2] == 0
    with pytest.raises(ValueError, match=r"all images that they are drawn from are of 'a' \(`task.negative_pool=first"):
        task.draw(8, Negatives.DRAWN, 1, torch.Generator())


def test_cifar10h_is_judged_on_the_authors_folds_and_crops() -> None:
    """Validation and test images have the same fractions; of fewer images, the first. Other images have our own."""
    labels = torch.arange(10_000) % 2
    # Two bytes of an image are its number.
    images = torch.zeros(10_000, 3, 32, 32, dtype=torch.uint8)
    images[:, 0, 0, 0], images[:, 1, 0, 0] = torch.arange(10_000) % 256, torch.arange(10_000) // 256
    data = ImageSet("cifar10h", ("a", "b"), images, torch.nn.functional.one_hot(labels, 2).float(), labels)

    def numbers_of(images: Tensor) -> list[int]:
        return (images[:, 0, 0, 0].long() + 256 * images[:, 1, 0, 0].long()).tolist()

    (fold,) = CifarTask(CifarTask.Config(n_eval=100), data, [4]).folds
    parts = authors_folds()
    assert numbers_of(fold.images) == torch.cat([parts[4], parts[0], parts[1]]).tolist()
    assert numbers_of(fold.validation.images) == parts[2][:100].tolist()
    assert numbers_of(fold.test.images) == parts[3][:100].tolist()
    assert torch.equal(fold.validation.kept, authors_crops()[:100])
    assert torch.equal(fold.test.kept, authors_crops()[:100])
    for change in ({"folds": Origin.OWN}, {"crops": Origin.OWN}):
        (own,) = CifarTask(CifarTask.Config(n_eval=100, **change), data, [4]).folds  # type: ignore[arg-type]
        is_same = torch.equal(own.test.images, fold.test.images), torch.equal(own.test.kept, fold.test.kept)
        assert is_same == ("folds" not in change, "crops" not in change)
    (other,) = CifarTask(CifarTask.Config(n_eval=100), replace(data, name="mine"), [4]).folds
    assert numbers_of(other.images) == split(10_000, 4).train.tolist()
    assert not torch.equal(other.test.kept, other.validation.kept)


def test_only_metrics_that_apply() -> None:
    task = CifarTask(CifarTask.Config(), certain(torch.arange(20) % 2), [0])
    encoder = smoke_images().encoder.build_for(task.config.inputs, (0,))
    for part, found in (("val", task.evaluate(encoder)), ("test", task.final(encoder))):
        always = ["crop_rank_corr", "recall_at_1", "recall_by_chance", "kappa_mean", "kappa_median"]
        at_the_end = ["rejection_area"] if part == "test" else []
        assert set(found[0]) == {f"{part}/{name}" for name in always + at_the_end}


def test_kappa_and_weights_are_the_seeds() -> None:
    first, again, other = (ResNetEncoder(ResNetEncoder.Config(width=2), [seed]) for seed in (1, 1, 2))
    x = torch.randint(256, (1, 5, 3, 32, 32), dtype=torch.uint8)
    torch.testing.assert_close(first(x).kappa, again(x).kappa, rtol=0, atol=0)
    assert not torch.equal(first(x).kappa, other(x).kappa)
    posterior = first(x)
    torch.testing.assert_close(posterior.mu.norm(dim=-1), torch.ones(1, 5))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"encoder__dim": 1}, "`encoder.dim >= 2` must hold, but got 1."),
        ({"task__fold": 5}, "`0 <= task.fold <= 4` must hold, but got 5."),
        ({"training__negatives": "shared"}, "they cannot be shared"),
        ({"task__labels": "soft-ish"}, "must be one of soft, hard, cifar10_hard"),
    ],
)
def test_bad_settings(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        smoke_images(**values)
