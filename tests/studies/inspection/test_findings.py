"""What there is to see in images: extremes and credible intervals against brute force."""

import math

import pytest
import torch
from scipy.integrate import quad
from scipy.optimize import brentq
from torch import Tensor

from pcl.data.embedded import embedded
from pcl.distributions import VonMisesFisher
from pcl.studies.inspection import findings as looking
from pcl.studies.inspection.findings import Pictures, all_pictures, extremes, look, queries


def posteriors(n: int, dim: int, generator: torch.Generator) -> VonMisesFisher:
    """Directions about a few centres, and kappa from 1 to 400."""
    centres = torch.randn(4, dim, generator=generator)[torch.arange(n) % 4]
    mu = torch.nn.functional.normalize(centres + 0.5 * torch.randn(n, dim, generator=generator), dim=-1)
    return VonMisesFisher(mu, 400 ** torch.rand(n, generator=generator))


def test_extremes_are_the_ends_of_each_class(generator: torch.Generator) -> None:
    kappa = torch.randint(1, 30, (97,), generator=generator).float()  # with ties
    labels = torch.randint(4, (97,), generator=generator) * 2  # some classes have no images
    labels[labels == 6] = torch.tensor([6] * 7 + [8] * int((labels == 6).sum() - 7))
    found = extremes(kappa, labels)
    assert [e.label for e in found] == sorted(set(labels.tolist()))
    for each in found:
        members = [i for i in range(97) if labels[i] == each.label]
        assert each.n_images == len(members)
        n = 3 if each.label == 6 else 5
        assert each.least == sorted(members, key=lambda i: (kappa[i].item(), i))[:n]
        assert each.most == sorted(members, key=lambda i: (-kappa[i].item(), i))[:n]
    assert extremes(torch.tensor([2.0]), torch.tensor([3]))[0].most == [0]


def threshold_by_integration(kappa: float, dim: int) -> float:
    """The t with P(z.mu >= t) = 0.95, from the density of the cosine w: exp(kappa w) (1 - w^2)^((D - 3) / 2)."""

    def mass(low: float) -> float:
        return float(quad(lambda w: math.exp(kappa * (w - 1)) * (1 - w * w) ** ((dim - 3) / 2), low, 1, limit=200)[0])

    total = mass(-1)
    return float(brentq(lambda t: mass(t) / total - 0.95, -1 + 1e-9, 1 - 1e-9, xtol=1e-10))


@pytest.mark.parametrize("dim", [3, 8])
def test_credible_images_against_brute_force(dim: int, generator: torch.Generator) -> None:
    posterior = posteriors(80, dim, generator)
    labels = torch.randint(3, (80,), generator=generator)
    found = queries(posterior, labels)
    by_kappa = sorted(range(80), key=lambda i: -posterior.kappa[i].item())
    assert [q.image for q in found] == [by_kappa[round(79 * place / 7)] for place in range(8)]
    mu = posterior.mu.double().numpy()
    sizes = set()
    for query in found:
        lowest = threshold_by_integration(posterior.kappa[query.image].item(), dim)
        assert query.threshold == pytest.approx(lowest, abs=1e-5)
        cosines = {i: float(mu[i] @ mu[query.image]) for i in range(80) if i != query.image}
        inside = sorted((i for i, c in cosines.items() if c >= lowest), key=lambda i: -cosines[i])
        assert query.n_inside == len(inside)
        assert query.n_same == sum(bool(labels[i] == labels[query.image]) for i in inside)
        assert query.cosines == pytest.approx([cosines[i] for i in query.shown], abs=1e-6)
        if len(inside) <= 10:
            assert query.shown == inside
        else:
            assert (len(query.shown), query.shown[0], query.shown[-1]) == (10, inside[0], inside[-1])
            assert [i for i in inside if i in query.shown] == query.shown
        sizes.add(len(inside))
    assert min(sizes) < 10 < max(sizes)


def test_pictures_of_a_large_set_are_drawn_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = embedded(n=40, n_train=10).images
    whole = all_pictures(data)
    assert torch.equal(whole.images, data.images)
    assert torch.equal(whole.labels, data.soft_labels.argmax(1))
    monkeypatch.setattr(looking, "MOST_IMAGES", 15)
    drawn = all_pictures(data)
    assert len(drawn.images) == len(drawn.kept) == 15
    assert torch.equal(drawn.images, all_pictures(data).images)


def made_up(n: int, shares: Tensor, generator: torch.Generator) -> Pictures:
    images = torch.randint(256, (n, 3, 32, 32), generator=generator, dtype=torch.uint8)
    kept = torch.rand(n, generator=generator)
    return Pictures(images, shares.argmax(1), torch.special.entr(shares).sum(1), images.float(), kept)


def test_what_cannot_be_looked_at(generator: torch.Generator) -> None:
    pictures = made_up(9, torch.eye(3).repeat(3, 1), generator)
    posterior = posteriors(9, 4, generator)
    findings = look(posterior, posterior.kappa, pictures)
    assert not findings.has_entropy
    assert math.isnan(findings.entropy_rank_corr)
    bad = posterior.kappa.clone()
    bad[3] = math.nan
    for worse in (VonMisesFisher(posterior.mu, bad, validate_args=False), posterior):
        with pytest.raises(ValueError, match="NaN or infinity for 1 of 9"):
            look(worse, bad, pictures)
