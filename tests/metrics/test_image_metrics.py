import itertools
import math
import re

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional
from torchvision.transforms import functional as vision

from pcl.distributions import VonMisesFisher
from pcl.metrics import retrieval
from pcl.metrics.crops import centre_crop_and_resize, draw_fractions
from pcl.metrics.retrieval import _nearest, credible_images, recall_at_1, rejection_curve
from pcl.metrics.uncertainty import crop_rank_corr, entropy, rank_corr_with_uncertainty
from tests.support.oracles import unit_vectors
from tests.support.pace import within
from tests.support.torch_state import synchronization_forbidden

MU, IMAGES = torch.eye(4), torch.zeros(2, 3, 32, 32, dtype=torch.uint8)


def naive_recall(mu: torch.Tensor, labels: torch.Tensor, queries: list[int], gallery: list[int]) -> float:
    cosines = (mu.double() @ mu.double().T).tolist()
    best = [max((j for j in sorted(gallery) if j != i), key=cosines[i].__getitem__) for i in queries]  # first of equals
    return float(np.mean([int(labels[i] == labels[j]) for i, j in zip(queries, best, strict=True)]))


def naive_curve(mu: torch.Tensor, labels: torch.Tensor, order: list[int]) -> list[float]:
    return [naive_recall(mu, labels, order[:m], order) for m in range(1, len(order) + 1)]


def clusters(n: int, generator: torch.Generator, dim: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.randint(4, (n,), generator=generator)
    centers = unit_vectors(4, dim, generator=generator, dtype=torch.float32)
    mu = functional.normalize(centers[labels] + 0.5 * torch.randn(n, dim, generator=generator), dim=-1)
    return mu, labels


def axes(n: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Points on the coordinate axes of 3 dimensions: nearly all nearest points are tied."""
    mu = torch.cat([torch.eye(3), -torch.eye(3)])[torch.randint(6, (n,), generator=generator)]
    return mu, torch.randint(2, (n,), generator=generator)


@pytest.mark.parametrize("points", [clusters, axes])
def test_recall_and_nearest_against_loops(points, generator: torch.Generator) -> None:
    mu, labels = points(90, generator)
    everyone = list(range(90))
    assert recall_at_1(mu, labels) == naive_recall(mu, labels, everyone, everyone)
    cosines = (mu.double() @ mu.double().T).fill_diagonal_(-torch.inf).numpy()
    assert _nearest(mu).tolist() == np.argmax(cosines, axis=1).tolist()  # of equals, the lowest index


def test_equal_cosines_tie_and_blocks_do_not_matter(generator: torch.Generator, monkeypatch) -> None:
    mu = unit_vectors(40, 37, generator=generator, dtype=torch.float32)[torch.randint(40, (200,), generator=generator)]
    labels, kappa = torch.randint(3, (200,), generator=generator), torch.rand(200, generator=generator)
    whole = _nearest(mu)
    recall = rejection_curve(mu, labels, kappa).recall
    for i, other in enumerate(whole.tolist()):
        duplicates = [j for j in range(200) if j != i and torch.equal(mu[i], mu[j])]
        assert other in duplicates[:1] or not duplicates
    for block in (1, 7 * 200, 199 * 200):
        monkeypatch.setattr(retrieval, "_BLOCK_CPU", block)
        assert torch.equal(_nearest(mu), whole)
        assert torch.equal(rejection_curve(mu, labels, kappa).recall, recall)


def test_rounding_of_directions_is_below_that_of_float32(generator: torch.Generator) -> None:
    mu = unit_vectors(3000, 16, generator=generator)
    cosines = (mu @ mu.T).fill_diagonal_(-torch.inf)
    assert (cosines.amax(dim=1) - cosines.gather(1, _nearest(mu).unsqueeze(1)).squeeze(1)).max() < 2e-8


@pytest.mark.parametrize("points", [clusters, axes])
def test_rejection_curve_against_loops(points, generator: torch.Generator) -> None:
    mu, labels = points(60, generator)
    kappa = torch.rand(60, generator=generator)
    curve = rejection_curve(mu, labels, kappa)
    expected = naive_curve(mu, labels, kappa.argsort(descending=True).tolist())
    assert curve.recall.tolist() == pytest.approx(expected, abs=1e-15)
    assert curve.area == pytest.approx(np.mean(expected), abs=1e-12)
    assert curve.kept_share.tolist() == pytest.approx([m / 60 for m in range(1, 61)])
    assert curve.recall[-1].item() == pytest.approx(recall_at_1(mu, labels))


def test_recall_and_rejection_by_hand() -> None:
    angles = torch.tensor([0.0, 0.1, 0.3, 2.0, 2.1])
    mu, labels = torch.stack([angles.cos(), angles.sin()], dim=-1), torch.tensor([0, 0, 1, 1, 1])
    assert _nearest(mu).tolist() == [1, 0, 1, 4, 3]
    assert _nearest(mu[[0, 3, 0, 3]]).tolist() == [2, 3, 0, 1]
    assert recall_at_1(7 * mu, labels) == pytest.approx(4 / 5)
    assert recall_at_1(mu, torch.arange(5)) == 0  # alone with one's label
    kappa = torch.tensor([9.0, 8.0, 1.0, 7.0, 2.0])  # the only miss, image 2, is rejected first
    assert rejection_curve(mu, labels, kappa).recall.tolist() == pytest.approx([1, 1, 1, 1, 4 / 5])
    assert rejection_curve(mu, labels, kappa).area == pytest.approx(24 / 25)


def test_tied_kappa_is_the_mean_over_orders(generator: torch.Generator) -> None:
    mu, labels = clusters(7, generator, dim=2)
    kappa = torch.tensor([3.0, 1.0, 3.0, 2.0, 3.0, 1.0, 3.0])
    blocks = [[0, 2, 4, 6], [3], [1, 5]]
    orders = [list(itertools.chain(*o)) for o in itertools.product(*(itertools.permutations(b) for b in blocks))]
    expected = np.mean([naive_curve(mu, labels, order) for order in orders], axis=0)
    assert rejection_curve(mu, labels, kappa).recall.tolist() == pytest.approx(expected.tolist(), abs=1e-12)


def test_the_order_of_the_input_does_not_matter(generator: torch.Generator) -> None:
    mu, labels = clusters(300, generator)
    kappa = torch.randint(5, (300,), generator=generator).float()
    curve, recall = rejection_curve(mu, labels, kappa), recall_at_1(mu, labels)
    for shuffle in (torch.randperm(300, generator=generator) for _ in range(5)):
        again = rejection_curve(mu[shuffle], labels[shuffle], kappa[shuffle])
        assert torch.equal(again.recall, curve.recall)
    flat = rejection_curve(mu, labels, torch.ones(300)).recall
    assert torch.allclose(flat, torch.full_like(flat, recall), atol=1e-12)


def test_certainty_that_knows_of_errors_has_the_larger_area(generator: torch.Generator) -> None:
    mu, labels = clusters(400, generator)
    hits = (labels[_nearest(mu)] == labels).double()
    noise = 0.5 * torch.rand(400, generator=generator)
    wrong, blind, knowing = (rejection_curve(mu, labels, kappa).area for kappa in (noise - hits, noise, noise + hits))
    assert wrong + 0.05 < blind < knowing - 0.05
    assert (rejection_curve(mu, labels, noise + hits).recall[: int(hits.sum())] == 1).all()


def test_credible_images_against_the_posterior(generator: torch.Generator) -> None:
    gallery = unit_vectors(500, 3, generator=generator, dtype=torch.float32)
    queries = VonMisesFisher(gallery[:4], torch.tensor([0.5, 5.0, 50.0, torch.inf]))
    inside = credible_images(queries.mu, queries.credible_threshold(0.95), gallery)
    for q, threshold in enumerate(queries.credible_threshold(0.95).double()):
        cosines = functional.normalize(gallery.double(), dim=-1) @ functional.normalize(queries.mu[q].double(), dim=-1)
        assert inside[q].tolist() == (cosines >= threshold - 1e-12).tolist()
    assert inside.sum(dim=1).diff().max() < 0  # surer, smaller
    assert inside[3].nonzero().tolist() == [[3]]  # a point mass holds its own mode and no other
    assert credible_images(queries.mu, torch.full((4,), -1.0), gallery).all()
    samples = VonMisesFisher(gallery[1], torch.tensor(5.0)).sample((20_000,), generator)
    n_inside = int(credible_images(gallery[1:2], queries.credible_threshold(0.95)[1:2], samples).sum())
    assert stats.binomtest(n_inside, 20_000, 0.95).pvalue > 1e-3


def test_entropy_against_scipy_and_by_hand(generator: torch.Generator) -> None:
    counts = torch.randint(0, 4, (999, 10), generator=generator) * torch.randint(0, 2, (999, 10), generator=generator)
    counts[:, 3] += 40
    shares = counts.double() / counts.sum(dim=1, keepdim=True)
    assert entropy(shares).numpy() == pytest.approx(stats.entropy(shares.numpy(), axis=1), abs=1e-12)
    assert entropy(torch.eye(10)).tolist() == [0.0] * 10
    assert entropy(torch.full((1, 10), 0.1)).item() == pytest.approx(math.log(10), rel=1e-6)
    shuffled = shares.gather(1, torch.rand(999, 10, generator=generator).argsort(dim=1))
    assert torch.equal(entropy(shuffled), entropy(shares))  # the same votes for other classes tie exactly


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rank_correlations_against_scipy(dtype: torch.dtype, generator: torch.Generator) -> None:
    quantity = torch.rand(2000, generator=generator, dtype=torch.float64).mul(40).round()  # many ties
    noise = torch.rand(2000, generator=generator, dtype=torch.float64)
    kappa = (16 + (60 * noise - quantity).exp().log1p().round()).to(dtype)
    expected = stats.spearmanr(1 / kappa.double(), quantity).statistic
    assert 0.2 < expected < 0.9
    assert rank_corr_with_uncertainty(kappa, quantity) == pytest.approx(expected, abs=1e-9)
    kappa = torch.tensor([2 - 2**-22, 2 - 2**-23, 0.0, torch.inf, 20.0])  # float32 has one reciprocal for the first two
    assert (1 / kappa)[0] == (1 / kappa)[1]
    assert rank_corr_with_uncertainty(kappa, torch.tensor([4.0, 3.0, 5.0, 1.0, 2.0])) == pytest.approx(1, abs=1e-12)


def test_crop_correlation_has_the_sign_of_the_paper(generator: torch.Generator) -> None:
    fractions = draw_fractions(2000, generator)
    assert stats.kstest(fractions, stats.uniform(0.25, 0.75).cdf).pvalue > 1e-3
    kappa = 10 + 30 * fractions + 10 * torch.rand(2000, generator=generator)  # larger crops are surer
    result = crop_rank_corr(kappa, fractions)
    assert result > 0.9
    assert result == pytest.approx(stats.spearmanr(1 / kappa, 1 - fractions).statistic, abs=1e-9)  # as the text says
    assert result == pytest.approx(stats.spearmanr(kappa, fractions).statistic, abs=1e-9)  # as the release computes it
    assert math.isnan(crop_rank_corr(torch.ones(2000), fractions))


def crop_slowly(images: torch.Tensor, fractions: torch.Tensor) -> torch.Tensor:
    results = []
    for image, fraction in zip(images.float(), fractions.tolist(), strict=True):
        side = max(1, round(32 * fraction))
        start = round((32 - side) / 2)
        crop = image[None, :, start : start + side, start : start + side]
        results.append(functional.interpolate(crop, size=(32, 32), mode="bilinear", align_corners=False)[0])
    return torch.stack(results)


def test_crops_equal_their_slow_twin(generator: torch.Generator) -> None:
    every_side = torch.arange(1, 33) / 32
    halves = torch.arange(1, 64, 2) / 64  # between two sides: to the even one
    fractions = torch.cat([every_side, halves, draw_fractions(200, generator), torch.tensor([1e-6, 1 - 1e-9])])
    images = torch.randint(256, (len(fractions), 3, 32, 32), generator=generator).byte()
    crops = centre_crop_and_resize(images, fractions)
    assert torch.equal(crops, crop_slowly(images, fractions))
    assert torch.equal(crops[31], images[31].float())  # fraction 1
    square = torch.zeros(3, 1, 32, 32, dtype=torch.uint8)
    square[:, :, 12:20, 12:20] = 200
    quarter, half, pixel = centre_crop_and_resize(square, torch.tensor([0.25, 0.5, 1e-6]))
    assert half[0, 16, 6:11].tolist() == [0, 50, 150, 200, 200]
    assert (torch.stack([quarter, pixel]) == 200).all()  # at the least one pixel


def test_crops_equal_those_of_torchvision_with_and_without_antialias(generator: torch.Generator) -> None:
    fractions = torch.arange(8, 33) / 32
    images = torch.randint(256, (25, 3, 32, 32), generator=generator).byte()
    scaled = (images / 255 - 0.4) / 0.25  # as the release: scaled and shifted first
    crops = (centre_crop_and_resize(images, fractions) / 255 - 0.4) / 0.25
    for image, crop, fraction in zip(scaled, crops, fractions.tolist(), strict=True):
        expected = vision.center_crop(image, round(32 * fraction))
        for antialias in (False, True):
            assert torch.allclose(crop, vision.resize(expected, [32, 32], antialias=antialias), atol=2e-6)


@pytest.mark.parametrize(("n", "repeats", "limit"), [(10_000, 1, 2.0), (2_000, 3, 0.1)])
def test_recall_is_fast_on_two_cores(n: int, repeats: int, limit: float, generator: torch.Generator) -> None:
    mu, labels = clusters(n, generator, dim=16)
    within(repeats * limit, lambda: [recall_at_1(mu, labels) for _ in range(repeats)])


@pytest.mark.gpu
def test_a_gpu_gives_the_same_numbers(generator: torch.Generator) -> None:
    mu, labels = clusters(5000, generator, dim=16)
    kappa = torch.rand(5000, generator=generator).mul(900).round()
    moved = mu.cuda(), labels.cuda(), kappa.cuda()
    assert torch.equal(_nearest(moved[0]).cpu(), _nearest(mu))
    assert recall_at_1(*moved[:2]) == recall_at_1(mu, labels)
    assert torch.equal(rejection_curve(*moved).recall.cpu(), rejection_curve(mu, labels, kappa).recall)
    threshold = torch.rand(5000, generator=generator)
    assert torch.equal(credible_images(moved[0], threshold.cuda(), moved[0]).cpu(), credible_images(mu, threshold, mu))
    fractions = draw_fractions(500, torch.Generator("cuda").manual_seed(1))
    images = torch.randint(256, (500, 3, 32, 32), generator=generator).byte()
    crops = centre_crop_and_resize(images.cuda(), fractions)
    assert torch.equal(crops.cpu(), centre_crop_and_resize(images, fractions.cpu()))


@pytest.mark.gpu
def test_blocks_on_a_gpu_never_wait_for_it(generator: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    mu = clusters(2000, generator)[0].cuda()
    monkeypatch.setattr(retrieval, "_BLOCK_DEVICE", 100 * 2000)
    with synchronization_forbidden():
        _nearest(mu)


def test_an_encoder_that_diverged_has_no_recall() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    broken = torch.eye(4).where(torch.arange(4) != 1, torch.nan)
    assert math.isnan(recall_at_1(broken, labels))
    for mu, kappa in (broken, torch.ones(4)), (torch.eye(4), broken[0]):
        curve = rejection_curve(mu, labels, kappa)
        assert curve.recall.isnan().all()
        assert math.isnan(curve.area)


@pytest.mark.parametrize(
    ("call", "arguments", "message"),
    [
        (recall_at_1, (MU, torch.ones(3)), "Each point needs one label, but got (3,) for 4 points."),
        (recall_at_1, (MU[:1], torch.ones(1)), "At least 2 points must be given, but got 1."),
        (rejection_curve, (MU, torch.ones(4), torch.ones(4, 1)), "Each point needs one kappa, but got (4, 1) for"),
        (credible_images, (MU, torch.ones(4), MU[:, :3]), "must have the same dimension, but got (4, 4) and (4, 3)."),
        (credible_images, (MU, torch.ones(3), MU), "Each query needs one threshold, but got (3,) for 4."),
        (entropy, (50 * MU,), "but row 0 sums to 50 and has the smallest share 0; divide counts of votes by their"),
        (rank_corr_with_uncertainty, (torch.ones(3), torch.ones(4)), "the same length, but got (3,) and (4,)."),
        (centre_crop_and_resize, (IMAGES.float(), torch.ones(2)), "uint8, but got (2, 3, 32, 32), float32."),
        (centre_crop_and_resize, (IMAGES, torch.ones(3)), "Each image needs one fraction, but got (3,) for 2."),
        (centre_crop_and_resize, (IMAGES, torch.tensor([1.0, 1.5])), "must hold for every image, but got 1.5."),
    ],
)
def test_bad_input_is_named(call, arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call(*arguments)
