import csv
import math
from pathlib import Path

import mpmath
import pytest
import torch
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.distributions import Distribution

from pcl.mathematics.special import (
    bessel_ratio,
    bessel_ratio_complement,
    bessel_ratio_slope,
    log_uniform_density,
    log_vmf_normalizer,
    log_vmf_peak,
)


def reference_rows() -> dict[int, list[dict[str, str]]]:
    with (Path(__file__).parent / "reference" / "bessel.csv").open() as file:
        rows = list(csv.DictReader(file))
    by_dim: dict[int, list[dict[str, str]]] = {}
    for row in rows:
        by_dim.setdefault(int(row["dim"]), []).append(row)
    return by_dim


REFERENCE = reference_rows()


def worst_relative_error(values: torch.Tensor, references: list[str]) -> float:
    """Computed in extended precision: a reference rounded to float64 would already be off by 1e-16."""
    return max(
        float(abs((mpmath.mpf(value) - mpmath.mpf(reference)) / mpmath.mpf(reference)))
        for value, reference in zip(values.tolist(), references, strict=True)
    )


def test_reference_table_covers_the_awkward_corners() -> None:
    assert {2, 3, 10, 512, 4096} <= REFERENCE.keys()
    for dim, rows in REFERENCE.items():
        kappas = [float(row["kappa"]) for row in rows]
        assert min(kappas) <= 1e-4 * dim
        assert any(0.5 * dim < kappa < 2 * dim for kappa in kappas)
        assert max(kappas) == 1e8


@pytest.mark.parametrize(
    ("dtype", "log_tolerance", "ratio_tolerance"), [(torch.float64, 1e-10, 1e-9), (torch.float32, 2e-6, 2e-5)]
)
@pytest.mark.parametrize("dim", REFERENCE)
def test_against_mpmath(dim: int, dtype: torch.dtype, log_tolerance: float, ratio_tolerance: float) -> None:
    rows = REFERENCE[dim]
    kappa = torch.tensor([float(row["kappa"]) for row in rows], dtype=dtype, requires_grad=True)
    log_c = log_vmf_normalizer(kappa, dim)
    ratio = bessel_ratio(kappa, dim)
    (slope,) = grad(ratio.sum(), kappa)
    (first,) = grad(log_c.sum(), kappa, create_graph=True)
    (second,) = grad(first.sum(), kappa)
    assert log_c.dtype == ratio.dtype == slope.dtype == dtype
    assert worst_relative_error(log_c, [row["log_c"] for row in rows]) <= log_tolerance
    assert worst_relative_error(ratio, [row["ratio"] for row in rows]) <= ratio_tolerance
    assert worst_relative_error(slope, [row["slope"] for row in rows]) <= ratio_tolerance
    assert worst_relative_error(-first, [row["ratio"] for row in rows]) <= ratio_tolerance
    assert worst_relative_error(-second, [row["slope"] for row in rows]) <= ratio_tolerance
    assert torch.equal(bessel_ratio_slope(kappa, dim), slope)


@pytest.mark.parametrize("dim", [2, 3, 10, 129, pytest.param(4096, marks=pytest.mark.slow)])
def test_peak_and_complement_keep_digits_where_the_plain_forms_cancel(dim: int) -> None:
    kappa = torch.tensor([float(row["kappa"]) for row in REFERENCE.get(dim, REFERENCE[128])], dtype=torch.float64)
    mpmath.mp.dps = 60
    for k, peak, complement in zip(kappa, log_vmf_peak(kappa, dim), bessel_ratio_complement(kappa, dim), strict=True):
        x, v = mpmath.mpf(k.item()), mpmath.mpf(dim) / 2 - 1
        below, above = (mpmath.besseli(order, x, maxterms=10**8) for order in (v, v + 1))
        exact_peak = v * mpmath.log(x) - (v + 1) * mpmath.log(2 * mpmath.pi) - mpmath.log(below) + x
        exact_complement = 1 - above / below
        assert abs(complement.item() / exact_complement - 1) < 1e-11
        assert abs(peak.item() - exact_peak) < 1e-11 * max(abs(exact_peak), 1)


@pytest.mark.parametrize("dim", [2, 3, 10, 34, 300])
@pytest.mark.parametrize("function", [log_vmf_normalizer, log_vmf_peak, bessel_ratio, bessel_ratio_complement])
def test_gradients_of_first_and_second_order(function, dim: int) -> None:
    kappa = torch.tensor([0.0, 0.1, 1.0, 7.0, 40.0, 300.0], dtype=torch.float64, requires_grad=True)
    precision = {"eps": 1e-5, "atol": 1e-7, "rtol": 1e-6}
    assert gradcheck(lambda k: function(k + 0.01, dim), kappa, **precision)
    assert gradgradcheck(lambda k: function(k + 0.01, dim), kappa, **precision, fast_mode=True)


def test_limits() -> None:
    zero = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    for dim in (2, 3, 10, 4096):
        log_area = math.log(2) + dim / 2 * math.log(math.pi) - math.lgamma(dim / 2)
        assert log_vmf_normalizer(zero, dim).item() == pytest.approx(-log_area, rel=1e-14)
        assert log_uniform_density(dim) == pytest.approx(-log_area, rel=1e-14)
        ratio = bessel_ratio(zero, dim)
        assert ratio.item() == 0
        (slope,) = grad(ratio, zero)
        assert slope.item() == pytest.approx(1 / dim, rel=1e-12)
    inf = torch.tensor(torch.inf)
    assert bessel_ratio(inf, 10).item() == 1
    assert bessel_ratio_complement(inf, 10).item() == 0
    assert log_vmf_normalizer(inf, 10).item() == -torch.inf
    assert log_vmf_peak(inf, 10).item() == torch.inf
    assert torch.isnan(bessel_ratio(torch.tensor(torch.nan), 10))
    assert bessel_ratio_slope(inf, 10).item() == 0
    assert bessel_ratio_slope(torch.tensor(0.0), 10).item() == pytest.approx(0.1)


def test_whole_numbers_are_not_truncated() -> None:
    assert log_vmf_normalizer(torch.tensor(5), 10).item() == pytest.approx(
        log_vmf_normalizer(torch.tensor(5.0), 10).item()
    )
    assert bessel_ratio(torch.tensor([1, 2]), 3).dtype == torch.float32


@pytest.mark.parametrize("kappa", [1e30, 1e37, 1e39, 1e45])
@pytest.mark.parametrize("dim", [2, 10, 64])
def test_far_beyond_the_promised_range_the_asymptote_holds(dim: int, kappa: float) -> None:
    """C_D(kappa) e^kappa -> (kappa / 2 pi)^((D-1)/2), whose derivative is (D-1) / (2 kappa)."""
    argument = torch.tensor(kappa, dtype=torch.float64, requires_grad=True)
    peak = log_vmf_peak(argument, dim)
    assert peak.item() == pytest.approx((dim - 1) / 2 * math.log(kappa / (2 * math.pi)), rel=1e-13)
    (slope,) = grad(peak, argument)
    assert slope.item() == pytest.approx((dim - 1) / (2 * kappa), rel=1e-12)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"`dim >= 2` must hold, but got 1"):
        log_vmf_normalizer(torch.ones(1), 1)


def test_more_derivatives_than_promised_are_refused() -> None:
    kappa = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    (first,) = grad(bessel_ratio(kappa, 5), kappa, create_graph=True)
    (second,) = grad(first, kappa, create_graph=True)
    with pytest.raises(NotImplementedError, match="differentiable twice"):
        grad(second, kappa)


def test_function_transforms() -> None:
    kappa = torch.linspace(0.5, 30, 7, dtype=torch.float64)
    per_element = torch.func.vmap(torch.func.grad(lambda k: log_vmf_normalizer(k, 10)))(kappa)
    torch.testing.assert_close(per_element, -bessel_ratio(kappa, 10))


@pytest.mark.gpu
def test_gpu_agrees_with_cpu() -> None:
    kappa = torch.logspace(-3, 8, 100, dtype=torch.float64)
    for dim in (2, 10, 1024):
        torch.testing.assert_close(log_vmf_normalizer(kappa.cuda(), dim).cpu(), log_vmf_normalizer(kappa, dim))
        torch.testing.assert_close(bessel_ratio(kappa.cuda(), dim).cpu(), bessel_ratio(kappa, dim))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's tracer instantiates the autograd function itself
def test_compiles_without_a_graph_break(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first compilation of a process turns the checks of all distributions off; the other tests need them.
    monkeypatch.setattr(Distribution, "_validate_args", Distribution._validate_args)
    kappa = torch.linspace(0, 30, 7, requires_grad=True)
    compiled = torch.compile(log_vmf_normalizer, fullgraph=True, backend="aot_eager")
    value = compiled(kappa, 10)
    torch.testing.assert_close(value, log_vmf_normalizer(kappa, 10))
    (slope,) = grad(value.sum(), kappa)
    torch.testing.assert_close(slope, -bessel_ratio(kappa.detach(), 10))
