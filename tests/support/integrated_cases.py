"""The kernels of integrated partners and guided samples against their reference forms; see `kernel_cases`."""

import torch
from torch import Tensor

from pcl.config.schedule import Trained
from pcl.distributions import VonMisesFisher
from pcl.kernels.integrated.log_mean import log_mean_similarity
from pcl.kernels.integrated.samples import samples_of
from pcl.kernels.integrated.terms import log_terms
from pcl.losses.mc_info_nce import log_mean_similarity as exact_similarity
from pcl.mathematics.normalizer_table import GrowthTable, growth_table
from pcl.mathematics.point_limit import is_concentrated, is_nearly_a_point, point_similarity
from pcl.tasks import Negatives
from pcl.training.steps.integrated_step import IntegratedStep
from pcl.training.steps.training_step import TrainingStep
from tests.support.oracles import unit_vectors
from tests.support.smoke import smoke_images

INTEGRATED_CASES = [(10, 20.0), (10, 980.0), (2, 20.0)]  # dimension, kappa_pos
# Dimension, whether kappa_pos is learned, the law of samples, the estimate of the log of their mean
STEP_CASES = [
    (8, False, "guided", "plain"), (8, True, "posterior", "plain"), (2, True, "guided", "plain"),
    (8, False, "guided", "corrected"),
]  # fmt: skip


def check_integrated_points(device: str) -> None:
    """Negatives beyond the table, up to a point, among others, against the closed form and its limit."""
    generator = torch.Generator().manual_seed(0)
    n_runs, n_rows, dim, n_others = (2, 70, 10, 38) if device == "cuda" else (1, 20, 10, 10)
    kappa = torch.tensor([20.0, 30.0, 1100.0, 5e3, 1e5, 1.5e6, 1e8, 1e16, 1e30, torch.inf] + n_others * [25.0])
    kappa = kappa.expand(n_runs, -1).contiguous()
    z = unit_vectors(n_runs, n_rows, dim, generator=generator, dtype=torch.float32)
    mu = unit_vectors(*kappa.shape, dim, generator=generator, dtype=torch.float32)
    mu[:, :10] = torch.nn.functional.normalize(mu[:, :10] + z[:, :10], dim=-1)  # near some, so that they count
    leaves = [leaf.to(device).requires_grad_() for leaf in (z, mu, kappa, torch.full((n_runs,), 20.0))]
    table = growth_table(dim, torch.device(device))
    out = log_mean_similarity(*leaves, table)
    out.sum().backward()  # type: ignore[no-untyped-call]
    exact = [leaf.detach().cpu().double().requires_grad_() for leaf in leaves]
    negatives = VonMisesFisher(exact[1].unsqueeze(1), exact[2].unsqueeze(1), validate_args=False)
    similarity = exact_similarity(negatives, torch.einsum("rmd,rnd->rmn", *exact[:2]), exact[3].view(-1, 1, 1))
    reference = torch.logsumexp(similarity, -1) - torch.log(torch.tensor(float(kappa.shape[1])))
    reference.sum().backward()  # type: ignore[no-untyped-call]
    assert (out.detach().cpu() - reference.detach()).abs().max() < 1e-3
    for ours, theirs in ((leaves[i], exact[i]) for i in (0, 1, 3)):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert (ours.grad.cpu() - theirs.grad).abs().max() < 1e-3 * theirs.grad.abs().max()
    ours, theirs = leaves[2].grad, exact[2].grad
    assert ours is not None
    assert theirs is not None
    assert (ours.cpu() - theirs).abs().max() < 0.05 * theirs.abs().max()  # the table has steps for slopes
    torch.testing.assert_close(ours.cpu()[:, 2:10].double(), theirs[:, 2:10], rtol=1e-2, atol=1e-38)


def check_integrated(device: str, dim: int, kappa_pos: float) -> None:
    """Against the same sums in torch, with as large a kappa_pos as brings the resultants beyond the table."""
    generator = torch.Generator().manual_seed(0)
    n_runs, n_rows, n_negatives = 2, 70, 45
    inputs = (
        unit_vectors(n_runs, n_rows, dim, generator=generator, dtype=torch.float32),
        unit_vectors(n_runs, n_negatives, dim, generator=generator, dtype=torch.float32),
        16 + 16 * torch.rand(n_runs, n_negatives, generator=generator),
        torch.tensor([kappa_pos, 1.1 * kappa_pos]),
    )
    upstream = torch.randn(n_runs, n_rows, generator=generator)
    results = []
    for place in ("cpu", device):
        leaves = [leaf.clone().to(place).requires_grad_() for leaf in inputs]
        table = growth_table(dim, torch.device(place))
        if not results:
            z, mu, kappa, scale = leaves
            cosine = torch.einsum("rmd,rnd->rmn", z, mu)
            scale = scale.view(-1, 1, 1)
            resultant = (kappa[:, None].square() + scale.square() + 2 * scale * kappa[:, None] * cosine).sqrt()
            similarity = table(resultant) - table(kappa)[:, None]
            out = torch.logsumexp(similarity, -1) - torch.log(torch.tensor(float(n_negatives)))
        else:
            out = log_mean_similarity(*leaves, table)
        (out * upstream.to(place)).sum().backward()  # type: ignore[no-untyped-call]
        results.append([out.detach().cpu(), *(leaf.grad.cpu() for leaf in leaves if leaf.grad is not None)])
    assert len(results[0]) == len(results[1]) == 5
    error = max(5e-5, 2e-7 * kappa_pos)  # cosines are rounded, and similarities have kappa_pos times their error
    for reference, fused in zip(*results, strict=True):
        assert (reference - fused).abs().max() < error * reference.abs().max()


# Kappas of anchors, of their guides and of positives: usual ones, beyond the table, points
GUIDED_KAPPAS = [
    (20.0, 35.0, 25.0), (1.5, 40.0, 700.0), (1200.0, 1220.0, 1100.0), (1e5, 1.001e5, 2e5), (3e6, 3e6, 2e7),
    (20.0, 30.0, torch.inf),
]  # fmt: skip


def _laws(dim: int, place: str) -> list[Tensor]:
    """Modes and kappas of anchors, guides and positives of two runs, all with gradients."""
    generator = torch.Generator().manual_seed(0)
    kappas = torch.tensor(GUIDED_KAPPAS).T.unsqueeze(1).expand(3, 2, -1)
    modes = unit_vectors(3, *kappas.shape[1:], dim, generator=generator, dtype=torch.float32)
    modes[:, 1, :, 0] *= -1  # either side of the reflection
    near = torch.nn.functional.normalize(modes[0] + modes[1] / kappas[0, ..., None].sqrt(), dim=-1)
    modes[1] = torch.where(kappas[0, ..., None] > 1e6, modes[0], near)  # points guide themselves
    return [leaf.clone().to(place).requires_grad_() for pair in zip(modes, kappas, strict=True) for leaf in pair]


def _assert_alike(results: list[list[Tensor]], tolerance: float) -> None:
    plain, fused = results
    assert len(plain) == len(fused)
    for reference, ours in zip(plain, fused, strict=True):
        largest = reference.abs().max().item()
        assert (reference - ours).abs().max() <= tolerance * largest
        torch.testing.assert_close(ours, reference, rtol=0.02, atol=0.1 * tolerance * largest)


def check_samples(device: str, dim: int) -> None:
    """Samples and their gradients are those of `rsample` from the same normals."""
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(7, 2, len(GUIDED_KAPPAS), dim, generator=generator)
    noise[0, 0, 0, 1:] = 0.0 if dim == 2 else noise[0, 0, 0, 1:]
    upstream = torch.randn(2, 7, len(GUIDED_KAPPAS), dim, generator=generator)
    results = []
    for place in ("cpu", device):
        _, _, mode, kappa, _, _ = _laws(dim, place)
        law = VonMisesFisher(mode, kappa, validate_args=False)
        is_plain = not results
        z = law._rsample_by(noise.clone()).transpose(0, 1) if is_plain else samples_of(law, noise.to(place))
        (z * upstream.to(place)).sum().backward()  # type: ignore[no-untyped-call]
        results.append([z.detach().cpu(), *(leaf.grad.cpu() for leaf in (mode, kappa) if leaf.grad is not None)])
    assert len(results[0]) == 3
    _assert_alike(results, 2e-5)


def check_log_terms(device: str, dim: int) -> None:
    """The weight of a guided sample and its similarity to the positive, with all gradients, against torch."""
    generator = torch.Generator().manual_seed(2)
    _, _, mode, kappa, _, _ = _laws(dim, "cpu")
    z = VonMisesFisher(mode, kappa, validate_args=False).sample((6,), generator).transpose(0, 1).contiguous()
    upstream = torch.randn(*z.shape[:3], generator=generator)
    results = []
    for place in ("cpu", device):
        leaves = [z.clone().to(place).requires_grad_(), *_laws(dim, place)]
        scale = torch.tensor([20.0, 980.0], device=place, requires_grad=True)
        table = growth_table(dim, torch.device(place))
        laws = [VonMisesFisher(*pair, validate_args=False) for pair in zip(leaves[1::2], leaves[2::2], strict=True)]
        terms = (_plain_log_terms if not results else log_terms)(leaves[0], *laws, scale, table)
        (terms * upstream.to(place)).sum().backward()  # type: ignore[no-untyped-call]
        gradients = [leaf.grad.cpu() for leaf in (*leaves, scale) if leaf.grad is not None]
        results.append([terms.detach().cpu(), *gradients])
    assert len(results[0]) == 9
    _assert_alike(results, 1e-4)
    anchor, guide, positive = (
        VonMisesFisher(law.mu.detach().cpu().double(), law.kappa.detach().cpu().double(), validate_args=False)
        for law in laws
    )
    weight = anchor.log_prob(z.double().transpose(0, 1)) - guide.log_prob(z.double().transpose(0, 1))
    weight = torch.where(is_nearly_a_point(anchor.kappa, scale.detach().cpu().unsqueeze(-1)), 0.0, weight)
    cosine = (z * positive.mu.unsqueeze(1)).sum(-1)
    of_runs = zip(positive.mu, positive.kappa, cosine, scale.detach().cpu(), strict=True)
    similarity = [exact_similarity(VonMisesFisher(mu, kappa, validate_args=False), c, s) for mu, kappa, c, s in of_runs]
    exact = weight.transpose(0, 1) + torch.stack(similarity)
    assert (results[1][0] - exact).abs().max() < 3e-3


def _plain_log_terms(
    z: Tensor, anchor: VonMisesFisher, guide: VonMisesFisher, positive: VonMisesFisher, kappa_pos: Tensor,
    table: GrowthTable,
) -> Tensor:  # fmt: skip
    scale, kappa = kappa_pos.view(-1, 1, 1), positive.kappa.unsqueeze(1)
    is_point = is_nearly_a_point(anchor.kappa, kappa_pos.unsqueeze(-1))

    def log_density(law: VonMisesFisher) -> Tensor:
        own = torch.where(is_point, 1.0, law.kappa).unsqueeze(1)
        return own * (z * law.mu.unsqueeze(1)).sum(-1) - table(own)

    weight = torch.where(is_point.unsqueeze(1), 0.0, log_density(anchor) - log_density(guide))
    cosine = (z * positive.mu.unsqueeze(1)).sum(-1)
    is_far = is_concentrated(kappa, scale)
    near, far = torch.where(is_far, 1.0, kappa), torch.where(is_far, kappa, torch.inf)
    resultant = (near.square() + scale.square() + 2 * scale * near * cosine).clamp(min=1e-12).sqrt()
    limit = point_similarity(far, cosine, scale, anchor.dim)
    return weight + torch.where(is_far, limit, table(resultant) - table(near))


def check_integrated_step(device: str, dim: int, is_learned: bool, anchors: str, log_mean: str) -> None:
    """On images, with the same candidates and samples: the loss and the gradients of the plain step."""
    values = {"training__batch_size": 8, "training__n_negatives": 20, "encoder__precision": "float32"}
    of_loss = {
        "loss__n_samples": 4, "loss__learn_kappa_pos": is_learned, "loss__anchors": anchors, "loss__log_mean": log_mean,
    }  # fmt: skip
    config = smoke_images("exact", encoder__dim=dim, **of_loss, **values)
    found = []
    for kind in (TrainingStep, IntegratedStep):
        task, encoder = config.task.build([1]), config.encoder.build_for(config.task.inputs, [1])
        step = kind(config, task, encoder, torch.device(device), seed=1)
        parameters = step.enter(Trained.JOINT, Negatives.POOL)
        losses = step.mean_losses(step.prepare())
        losses.sum().backward()
        found.append([losses.detach(), *(p.grad for p in parameters if p.grad is not None)])
        assert (getattr(step, "_contrast", None) is not None) is (kind is IntegratedStep)
    assert len(found[0]) == len(found[1]) > 10
    assert (found[0][-1].shape == ()) is is_learned  # of kappa_pos
    for plain, fused in zip(*found, strict=True):
        assert (plain - fused).abs().max() < 0.02 * plain.abs().max()  # the table has steps for slopes
