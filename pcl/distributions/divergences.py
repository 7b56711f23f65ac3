"""Kullback-Leibler divergences between distributions on the sphere, registered with torch.distributions."""

import torch
from torch import Tensor
from torch.distributions import kl_divergence
from torch.distributions.kl import register_kl

from pcl.distributions.checks import broadcast_shape
from pcl.distributions.sphere_uniform import SphereUniform
from pcl.distributions.von_mises_fisher import VonMisesFisher
from pcl.mathematics.special import bessel_ratio_complement, log_uniform_density, log_vmf_normalizer, log_vmf_peak

__all__ = ["kl_divergence"]


def _check_dims(p: VonMisesFisher | SphereUniform, q: VonMisesFisher | SphereUniform) -> None:
    if p.dim != q.dim:
        raise ValueError(f"Both distributions must have the same dimension, but got {p.dim} and {q.dim}.")


def _kl_vmf_vmf(p: VonMisesFisher, q: VonMisesFisher) -> Tensor:
    """Return log C(kp) - log C(kq) + A(kp) (kp - kq mu_p.mu_q), rearranged so that large kappas do not cancel.

    Limits: a point mass on either side gives inf; two point masses at the same place give 0.
    """
    _check_dims(p, q)
    kappa_p, kappa_q = p._finite_kappa().double(), q._finite_kappa().double()
    complement = bessel_ratio_complement(kappa_p, p.dim)
    distance = 0.5 * (p.mu.double() - q.mu.double()).square().sum(-1)  # 1 - mu_p.mu_q
    peaks = log_vmf_peak(kappa_p, p.dim) - log_vmf_peak(kappa_q, q.dim)
    divergence = peaks + (kappa_q - kappa_p) * complement + kappa_q * (1 - complement) * distance
    is_point, is_same = p.kappa.isinf() | q.kappa.isinf(), p.kappa.isinf() & q.kappa.isinf() & (distance == 0)
    return torch.where(is_same, 0.0, torch.where(is_point, torch.inf, divergence)).to(p.mu.dtype)


def _kl_vmf_uniform(p: VonMisesFisher, q: SphereUniform) -> Tensor:
    _check_dims(p, q)
    divergence = -p.entropy() - log_uniform_density(p.dim)
    return divergence.expand(broadcast_shape(p.batch_shape, q.batch_shape))


def _kl_uniform_vmf(p: SphereUniform, q: VonMisesFisher) -> Tensor:
    _check_dims(p, q)
    divergence = log_uniform_density(q.dim) - log_vmf_normalizer(q.kappa, q.dim)
    return divergence.expand(broadcast_shape(p.batch_shape, q.batch_shape))


def _kl_uniform_uniform(p: SphereUniform, q: SphereUniform) -> Tensor:
    _check_dims(p, q)
    return torch.zeros_like(p.entropy()).expand(broadcast_shape(p.batch_shape, q.batch_shape))


register_kl(SphereUniform, SphereUniform)(_kl_uniform_uniform)
register_kl(VonMisesFisher, VonMisesFisher)(_kl_vmf_vmf)
register_kl(VonMisesFisher, SphereUniform)(_kl_vmf_uniform)
register_kl(SphereUniform, VonMisesFisher)(_kl_uniform_vmf)
