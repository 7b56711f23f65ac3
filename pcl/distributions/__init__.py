"""Distributions on the unit sphere."""

from pcl.distributions.divergences import kl_divergence
from pcl.distributions.law import EXACT_LAW, CosineLaw, Sampler, SamplerGradient
from pcl.distributions.projected import ProjectedLaplace, ProjectedNormal
from pcl.distributions.sphere_uniform import SphereUniform
from pcl.distributions.von_mises_fisher import VonMisesFisher

__all__ = [
    "EXACT_LAW",
    "CosineLaw",
    "ProjectedLaplace",
    "ProjectedNormal",
    "Sampler",
    "SamplerGradient",
    "SphereUniform",
    "VonMisesFisher",
    "kl_divergence",
]
