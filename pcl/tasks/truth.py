"""The controlled experiment's generative process: random networks that define the posterior of every x.

Axes: R runs, B inputs, D dim.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, normalize

from pcl.distributions import CosineLaw, ProjectedLaplace, ProjectedNormal, Sampler, VonMisesFisher
from pcl.encoders import Backbone, KappaLink, StackedMlp
from pcl.encoders.mlp import KappaHead, flattened
from pcl.mathematics.random_streams import streams
from pcl.mathematics.threads import using_threads

N_PROBES = 1000  # inputs over which kappa is scaled to its range and the spread of mu is measured, as in the paper
# Hidden widths of a shared backbone's kappa network in the release's last version: one layer less than the encoder's.
SHARED_WIDTHS = (10, 50, 50, 50, 50, 10)
_BLOCK_OF_DRAWS = 64  # networks drawn at once; another number gives other networks
_SMOOTHING_STEPS, _SMOOTHING_BATCH, _SMOOTHING_LR = 5000, 64, 0.01  # as in the released code


class Family(Enum):
    """The family of the true posteriors."""

    VMF = "vmf"
    GAUSSIAN = "gaussian"  # variance 1/kappa around mu, projected to the sphere
    LAPLACE = "laplace"  # scale 1/kappa around mu, projected
    DIRAC = "dirac"  # all mass at mu: an injective process


class Smoothing(Enum):
    """Smoothing of a drawn mu network."""

    NONE = "none"  # as the paper writes it
    # 5,000 steps that bring 1 - cos/2 of two modes close to the distance of their inputs; the modes then cover more of
    # the sphere, and few draws are rejected.
    RELEASED = "released"


class Truth(nn.Module):
    """R generative processes: mu(x) from a perceptron of three linear layers, kappa from another, of x or of mu(x).

    The caller sets the range of `kappa_head` by `KappaHead.span`.
    """

    def __init__(
        self,
        mu_net: StackedMlp,
        kappa_net: StackedMlp,
        kappa_link: KappaLink,
        family: Family,
        sampler: Sampler,
        backbone: Backbone = Backbone.INDEPENDENT,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.mu_net, self.kappa_net = mu_net, kappa_net
        self.kappa_head = KappaHead(kappa_link, len(mu_net.weights[0]))
        self.family = family
        self.law = CosineLaw(sampler)
        self.requires_grad_(False)

    def parameters_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mu (R, B, D) and kappa (R, B) for inputs (R, B, dim_x)."""
        mu = normalize(self.mu_net(x), dim=-1)
        if self.family is Family.DIRAC:
            return mu, torch.full_like(mu[..., 0], math.inf)
        return mu, self.kappa_head(self.kappa_net(self.backbone.kappa_input(x, mu)))

    def posteriors(self, mu: Tensor, kappa: Tensor) -> VonMisesFisher | ProjectedNormal | ProjectedLaplace:
        """Return the posteriors with these parameters."""
        if self.family is Family.GAUSSIAN:
            return ProjectedNormal(mu, kappa, validate_args=False)
        if self.family is Family.LAPLACE:
            return ProjectedLaplace(mu, kappa, validate_args=False)
        return VonMisesFisher(mu, kappa, validate_args=False, law=self.law)

    def latents(self, mu: Tensor, kappa: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one latent z of each posterior, (R, B, D)."""
        if self.family is Family.DIRAC:
            return mu
        return self.posteriors(mu, kappa).sample(generator=generator)

    def digest(self) -> bytes:
        """Return a digest of all numbers that define it."""
        content = b"".join(value.cpu().numpy().tobytes() for value in self.state_dict().values())
        return hashlib.sha256(content).digest()


@dataclass(frozen=True)
class MuRecipe:
    """The distribution from which the mu networks are drawn; see `ToyTask.Config`."""

    sizes: tuple[int, ...]  # of the layers
    smoothing: Smoothing
    largest_cosine: float
    max_draws: int

    def drawn(self, generators: list[torch.Generator]) -> list[StackedMlp]:
        """Return, for every generator, the first network whose modes spread; draws are tested in blocks."""
        found = []
        for generator in generators:
            for start in range(0, self.max_draws, _BLOCK_OF_DRAWS):
                n = min(_BLOCK_OF_DRAWS, self.max_draws - start)
                nets = StackedMlp(self.sizes, [generator] * n)
                probes = torch.rand(1, N_PROBES, self.sizes[0], generator=generator)
                cosines = enumerate(_smallest_cosines(nets, probes.expand(n, -1, -1)))
                accepted = next((i for i, cosine in cosines if cosine <= self.largest_cosine), None)
                if accepted is not None:
                    found.append(_select(nets, accepted))
                    break
            else:
                raise self._gave_up()
        return found

    def smoothed(self, generators: list[torch.Generator]) -> list[StackedMlp]:
        """Return the same as `drawn` with smoothing, which is slow: one draw of every pending generator at a time.

        It uses double precision: in single precision, rounding differs between threads and machines, and a seed would
        give other networks.
        """
        found: dict[int, StackedMlp] = {}
        for _ in range(self.max_draws):
            pending = [i for i in range(len(generators)) if i not in found]
            if not pending:
                break
            sources = [generators[i] for i in pending]
            nets = StackedMlp(self.sizes, sources).double()
            smooth(nets, self.sizes[0], sources)
            nets = nets.float()
            probes = torch.stack([torch.rand(N_PROBES, self.sizes[0], generator=g) for g in sources])
            cosines = enumerate(_smallest_cosines(nets, probes))
            found |= {pending[j]: _select(nets, j) for j, cosine in cosines if cosine <= self.largest_cosine}
        if len(found) < len(generators):
            raise self._gave_up()
        return [found[i] for i in range(len(generators))]

    def _gave_up(self) -> ValueError:
        return ValueError(
            f"No generator with a cosine of at most {self.largest_cosine:g} between two modes was found in "
            f"{self.max_draws} draws; raise `task.largest_cosine` or `task.max_draws`, or set task.smoothing=released."
        )


@lru_cache(maxsize=16)
def mu_nets(recipe: MuRecipe, seeds: tuple[int, ...]) -> StackedMlp:
    """Return a network per seed, redrawn until its modes spread; do not modify it, as it is shared.

    It is cached: a worker trains trial after trial on the same truths, and smoothing takes seconds.
    """
    draw = recipe.smoothed if recipe.smoothing is Smoothing.RELEASED else recipe.drawn
    with using_threads(1):
        return _stack(draw(streams(seeds, "truth/mu")))


@torch.no_grad()
def smooth(nets: StackedMlp, dim_x: int, generators: Sequence[torch.Generator]) -> None:
    """Smooth like the released code: Adam on the mean over pairs of (|x - x'| - d)^2 (sqrt 2 - d)^4, d = 1 - mu.mu'/2.

    The gradient is written out: on networks this small, autograd's bookkeeping would take several times as long.
    """
    parameters = [*nets.weights, *nets.biases]
    dtype = parameters[0].dtype
    adam = _Adam(parameters)
    n, block = _SMOOTHING_BATCH, 250
    # Pairs i >= j of n points, as weights of the whole matrix, which is symmetric.
    weight = (torch.ones(n, n, dtype=dtype) + torch.eye(n, dtype=dtype)) / (n * (n + 1))
    for _ in range(0, _SMOOTHING_STEPS, block):
        drawn = [torch.rand(block, n, dim_x, generator=generator, dtype=dtype) for generator in generators]
        inputs = torch.stack(drawn, dim=1)
        for x, distance_x in zip(inputs, torch.cdist(inputs, inputs), strict=True):
            adam.step(_smoothing_gradient(nets, x, distance_x, weight))


def _smoothing_gradient(nets: StackedMlp, x: Tensor, distance_x: Tensor, weight: Tensor) -> list[Tensor]:
    """Return the gradient of the smoothing loss in all weights, then all biases; (sqrt 2 - d)^4 counts as constant.

    Inputs are (R, n, dim_x), their distances (R, n, n), and the weights of pairs (n, n), symmetric.
    """
    acts = [x]
    for i, (w, b) in enumerate(zip(nets.weights, nets.biases, strict=True)):
        y = torch.baddbmm(b, acts[-1], w)
        acts.append(leaky_relu(y) if i < len(nets.weights) - 1 else y)
    length = acts[-1].norm(dim=-1, keepdim=True)
    mu = acts[-1] / length
    distance = torch.baddbmm(mu.new_ones(()), mu, mu.mT, alpha=-0.5)
    slope = weight * (math.sqrt(2) - distance).square_().square_() * (distance - distance_x)  # half of dloss/d distance
    d_mu = -2 * (slope @ mu)
    delta = (d_mu - mu * (mu * d_mu).sum(-1, keepdim=True)) / length
    d_weights, d_biases = [], []
    for i in reversed(range(len(nets.weights))):
        d_weights.append(acts[i].mT @ delta)
        d_biases.append(delta.sum(1, keepdim=True))
        if i:
            delta = delta @ nets.weights[i].mT
            delta = torch.where(acts[i] < 0, 0.01 * delta, delta)  # the slope of torch's leaky ReLU
    return [*reversed(d_weights), *reversed(d_biases)]


class _Adam:
    """Adam with torch's defaults on parameters that become views of one buffer."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.flat = flattened(parameters)
        self.mean, self.square = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.n_steps = 0

    def step(self, gradients: Sequence[Tensor]) -> None:
        gradient = torch.cat([g.flatten() for g in gradients])
        self.n_steps += 1
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        root = (self.square / (1 - 0.999**self.n_steps)).sqrt_().add_(1e-8)
        self.flat.addcdiv_(self.mean, root, value=-_SMOOTHING_LR / (1 - 0.9**self.n_steps))


@torch.no_grad()
def _smallest_cosines(nets: StackedMlp, x: Tensor) -> Iterator[Tensor]:
    """Yield each network's smallest cosine between two modes, one by one: a network's cosines fit into a cache."""
    for mu in normalize(nets(x), dim=-1).split(1):
        yield (mu @ mu.mT).amin()


def _select(nets: StackedMlp, run: int) -> StackedMlp:
    return _rebuilt([[p[run : run + 1] for p in parameters] for parameters in (nets.weights, nets.biases)])


def _stack(nets: Sequence[StackedMlp]) -> StackedMlp:
    weights, biases = (
        [torch.cat(layer) for layer in zip(*parameters, strict=True)]
        for parameters in ([net.weights for net in nets], [net.biases for net in nets])
    )
    return _rebuilt([weights, biases])


def _rebuilt(parameters: list[list[Tensor]]) -> StackedMlp:
    net = StackedMlp([1], [])
    net.weights, net.biases = (nn.ParameterList(part.detach().clone() for part in parts) for parts in parameters)
    return net
