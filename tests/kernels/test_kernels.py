"""The fused path: its random numbers, its transport, its formulas; and on a GPU the kernels and steps themselves."""

import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest
import torch

from pcl.distributions import CosineLaw, Sampler, SamplerGradient, VonMisesFisher
from pcl.distributions.cosine import cosine_table
from pcl.kernels.inputs import Partners, kappa_gradients
from pcl.kernels.transport import N_COEFFICIENTS, transport_table
from pcl.losses import MCInfoNCE, PositiveWeight
from pcl.mathematics.normalizer_table import growth_table
from pcl.mathematics.special import bessel_ratio, log_vmf_normalizer
from tests.support.kernel_reference import curves, draw_noise, fused_mc_info_nce, normals, philox, polynomial
from tests.support.oracles import unit_vectors

EXPECTED_SECONDS = 75

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton comes with torch's CUDA builds")

CPU = torch.device("cpu")
EXACT = (Sampler.EXACT, SamplerGradient.EXACT)


def test_philox_is_random123s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known answers of Philox4x32 with ten rounds, from Random123's test vectors."""
    monkeypatch.setattr("tests.support.kernel_reference.ROUNDS", 10)
    zero = [word.item() for word in philox(0, (torch.tensor(0), 0, 0, 0))]
    assert zero == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 0xFFFFFFFF
    all_ones = [word.item() for word in philox(ones << 32 | ones, (torch.tensor(ones), ones, ones, ones))]
    assert all_ones == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def test_philox_normals_are_normal() -> None:
    words = philox(7, (torch.arange(200_000), 0, 0, 0))
    samples = torch.cat([*normals(words[:2]), *normals(words[2:])])
    n = len(samples)
    assert abs(samples.mean()) < 4 / n**0.5
    assert abs(samples.var() - 1) < 4 * (2 / n) ** 0.5
    assert abs(samples.pow(4).mean() - 3) < 4 * (96 / n) ** 0.5


@pytest.mark.parametrize(
    ("dim", "sampler", "gradient"),
    [
        pytest.param(*case, marks=[] if case[0] == 10 or case[1:] == EXACT else pytest.mark.slow)
        for case in product([4, 10, 64], Sampler, SamplerGradient)
    ],
)
def test_transport_is_the_tables(dim: int, sampler: Sampler, gradient: SamplerGradient) -> None:
    """Polynomials against the spline: value and slope, root mean square over a normal t."""
    law = CosineLaw(sampler, gradient)
    t = torch.linspace(-5, 5, 401)
    weight = torch.exp(-t * t / 2)
    weight /= weight.sum()
    spline, table = cosine_table(dim, torch.float64, CPU, law), transport_table(dim, law, CPU)
    assert table.nodes.is_contiguous()  # kernels read by address
    assert table.tangent.is_contiguous()
    for value in (1.0, 16.0, 25.0, 32.0, 300.0, 1e5):
        both = curves(table, torch.tensor([value]))
        log_tan, slope = polynomial(both[:N_COEFFICIENTS], t), polynomial(both[N_COEFFICIENTS:], t)
        kappa = torch.full(t.shape, value, dtype=torch.float64, requires_grad=True)
        cosine, sine = spline.polar(t.double(), kappa)
        angle = torch.atan2(sine, cosine)
        (d_angle,) = torch.autograd.grad(angle.sum(), kappa)
        exact, exact_slope = torch.log(torch.tan(angle.detach() / 2)), d_angle / sine.detach()
        assert (weight * (log_tan - exact).square()).sum().sqrt() < 2e-3
        error = (weight * (slope - exact_slope).square()).sum() / (weight * exact_slope.square()).sum()
        # The released law has a kink; its exact gradient has a step there, which a polynomial in t cannot follow.
        assert error.sqrt() < (2e-2 if sampler is Sampler.RELEASED else 1e-3)


def test_transport_refuses_small_dimensions() -> None:
    with pytest.raises(ValueError, match="dim >= 4"):
        transport_table(3, CosineLaw(), CPU)


@pytest.mark.parametrize(("is_curved", "of_value", "of_slope"), [(False, 3e-4, 7e-3), (True, 5e-6, 2e-5)])
def test_growth_is_the_log_normalizers(is_curved: bool, of_value: float, of_slope: float) -> None:
    kappa = torch.linspace(0, 900, 2001, dtype=torch.float32).double()
    table = growth_table(10, CPU)
    value, slope = (table.lookup_curved if is_curved else table.lookup)(kappa.float())
    exact = log_vmf_normalizer(torch.zeros(1, dtype=torch.float64), 10) - log_vmf_normalizer(kappa, 10)
    torch.testing.assert_close(value.double(), exact, rtol=2e-7 if is_curved else 1e-5, atol=of_value)
    torch.testing.assert_close(slope.double(), bessel_ratio(kappa, 10), rtol=0, atol=of_slope)


@pytest.mark.parametrize("dim", [2, 10, 64, 512])
def test_growth_goes_on_beyond_its_table(dim: int) -> None:
    kappa = torch.tensor([1001.0, 1500.0, 5e3, 1e5, 1e7], dtype=torch.float64)
    value, slope = growth_table(dim, CPU).lookup(kappa.float())
    assert all(map(torch.equal, growth_table(dim, CPU).lookup_curved(kappa.float()), (value, slope)))
    exact = log_vmf_normalizer(torch.zeros(1, dtype=torch.float64), dim) - log_vmf_normalizer(kappa, dim)
    torch.testing.assert_close(value.double(), exact, rtol=2e-6 if dim <= 64 else 3e-4, atol=1e-3)
    torch.testing.assert_close(slope.double(), bessel_ratio(kappa, dim), rtol=0, atol=1e-6 if dim <= 64 else 1e-3)
    assert growth_table(dim, CPU).lookup(torch.tensor([torch.inf]))[1].item() == 1


@pytest.mark.parametrize(
    ("n_negatives", "weight"), [(1, PositiveWeight.ONE), (8, PositiveWeight.ONE_OVER_N), (8, PositiveWeight.ZERO)]
)
def test_reference_form_has_the_plain_losses_statistics(n_negatives: int, weight: PositiveWeight) -> None:
    """Loss and gradients of the kernels' formulas agree in mean with `MCInfoNCE`, within four standard errors."""
    generator = torch.Generator().manual_seed(0)
    # As many samples as 200 repeats of 16: many in one call cost little more than few.
    n_anchors, dim, n_samples, repeats = 6, 10, 64, 50
    anchor = unit_vectors(n_anchors, dim, generator=generator, dtype=torch.float32)
    positive = torch.nn.functional.normalize(
        anchor + 0.5 * unit_vectors(n_anchors, dim, generator=generator, dtype=torch.float32), dim=-1
    )
    negatives = unit_vectors(n_anchors, n_negatives, dim, generator=generator, dtype=torch.float32)
    kappas = [
        16 + 16 * torch.rand(s, generator=generator) for s in ((n_anchors,), (n_anchors,), (n_anchors, n_negatives))
    ]
    leaves = [t.requires_grad_() for t in (anchor, positive, negatives, *kappas)]
    table = transport_table(dim, CosineLaw(), CPU)
    plain = MCInfoNCE.Config(n_samples=n_samples, positive_weight=weight).build()

    def fused_loss(step: int) -> torch.Tensor:
        partners = Partners(*leaves)
        noise = draw_noise(1, step, n_samples, partners)
        return fused_mc_info_nce(table, partners, noise, torch.tensor(20.0), weight.of(n_negatives)).mean()

    def plain_loss(_: int) -> torch.Tensor:
        triple = (
            VonMisesFisher(mu, kappa, validate_args=False) for mu, kappa in zip(leaves[:3], leaves[3:], strict=True)
        )
        return plain(*triple, generator=generator).mean()

    def statistics(loss_at: object) -> tuple[torch.Tensor, torch.Tensor]:
        rows = []
        for step in range(repeats):
            loss = loss_at(step)  # type: ignore[operator]
            gradients = torch.autograd.grad(loss, leaves)
            # Only the part of a gradient along the sphere is defined.
            along = [g - (g * mu).sum(-1, keepdim=True) * mu for g, mu in zip(gradients[:3], leaves[:3], strict=True)]
            rows.append(torch.cat([loss.detach().view(1), *(g.detach().flatten() for g in (*along, *gradients[3:]))]))
        table_of_rows = torch.stack(rows).double()
        return table_of_rows.mean(0), table_of_rows.var(0) / repeats

    (mean_a, var_a), (mean_b, var_b) = statistics(fused_loss), statistics(plain_loss)
    z = (mean_a - mean_b) / (var_a + var_b).sqrt().clamp(min=1e-9)
    assert abs(z[0]) < 4
    # Of some hundred components, the largest deviation: P(|t| > 5.5) of 98 degrees of freedom is 3e-7 for each.
    assert z.abs().max() < 5.5
    assert z.square().mean() < 1.5


def test_gradients_in_kappa_are_those_of_each_partner() -> None:
    grad, d_kappa = torch.tensor([1.0, 10.0]), torch.arange(10.0)
    anchor, positive, negatives = kappa_gradients(grad, d_kappa, (2, 3))
    assert (anchor.tolist(), positive.tolist()) == ([0, 10], [2, 30])
    assert negatives.tolist() == [[4, 5, 6], [70, 80, 90]]


def _interpreted(module: str) -> str:
    """Run a module of tests under Triton's interpreter, which is chosen on import; return what it prints."""
    result = subprocess.run(
        [sys.executable, "-m", module], env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


@needs_triton
def test_kernels_under_the_interpreter() -> None:
    """The kernels themselves, on the CPU, against their reference forms."""
    assert "agree" in _interpreted("tests.support.kernel_cases")


@pytest.mark.slow
@needs_triton
def test_a_step_of_images_under_the_interpreter() -> None:
    assert "agrees" in _interpreted("tests.support.image_step_case")


@pytest.mark.slow
@needs_triton
def test_kernels_compile_for_a_gpu(tmp_path: Path) -> None:
    """The interpreter takes what the compiler refuses; neither needs a GPU."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.support.kernel_compilation"],
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "28 kernels compile" in result.stdout


@pytest.mark.gpu
def test_kernels_on_the_device() -> None:
    from tests.support.kernel_cases import check_all  # noqa: PLC0415  needs Triton

    check_all("cuda")
