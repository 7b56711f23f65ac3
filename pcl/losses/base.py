"""Base of all losses: the contract, in-batch negatives, the contrastive ratio and Monte-Carlo similarities.

Axes: S samples, B anchors, N negatives, D dim.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from enum import Enum
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pcl.distributions import VonMisesFisher
from pcl.losses.learned_scalar import PositiveScalar
from pcl.losses.log_mean import LogMean

# The paper's largest setting, 512 samples x 512 anchors x 32 negatives, is one chunk: about 0.75 GB in float32.
DEFAULT_CHUNK_SIZE = 2**23
# On a CPU, memory is slower than arithmetic: chunks near the cache's size, computed twice, take 0.7 of the time of one
# large one (that setting, two cores).
CPU_CHUNK_SIZE = 2**20


# Metadata of a setting that was added after runs were recorded: at its default it is left out of records and keys.
ADDED_LATER = {"is_added_later": True}


class Negatives(Enum):
    """The source of an anchor's negatives."""

    DRAWN = "drawn"  # each anchor's own
    SHARED = "shared"  # one set for all anchors of a batch
    # All candidates that the batch's positives were chosen from. The loss in its form for infinitely many negatives is
    # then the exact likelihood of that choice, for any number of candidates; with other negatives, the truth is its
    # optimum only for infinitely many.
    POOL = "pool"
    IN_BATCH = "in_batch"  # the positive of another anchor: "M = 0" in the paper's tables

    @property
    def are_common(self) -> bool:
        """True if all anchors of a batch have the same negatives."""
        return self in (Negatives.SHARED, Negatives.POOL)


class PositiveWeight(Enum):
    """Weight of the positive pair in a contrastive denominator, whose N negatives weigh 1/N each."""

    ONE_OVER_N = "one_over_n"  # as the paper writes it
    ONE = "one"  # as the released code computes it
    ZERO = "zero"  # the limit of infinitely many negatives

    def of(self, n_negatives: int) -> float:
        """Return the weight as a number."""
        return {PositiveWeight.ONE_OVER_N: 1 / n_negatives, PositiveWeight.ONE: 1.0, PositiveWeight.ZERO: 0.0}[self]


class SampledContrast(NamedTuple):
    """The numbers of MCInfoNCE that fused kernels need."""

    n_samples: int
    largest_kappa_pos: float  # upper bound of kappa_pos: infinite if it is learned
    positive_weight: PositiveWeight
    is_integrated: bool  # positives and negatives enter by their expectation
    is_guided: bool  # the anchor's samples come from near the positive too
    log_mean: LogMean  # estimate of the logarithm of the mean over samples


class SampledMatch(NamedTuple):
    """The numbers of HIB that fused kernels need."""

    n_samples: int
    is_mean_inside: bool  # the mean over samples is inside each logarithm
    negative_weight: Callable[[int], float]  # weight of each negative, from their number


class LossConfig(ABC):
    """Settings of a loss: the base of a frozen dataclass `Config` inside it, whose fields are plain values or enums."""

    trains_kappa: ClassVar[bool] = True  # whether the loss has a gradient in kappa

    @abstractmethod
    def build(self) -> "Loss":
        """Return a loss with these settings."""

    def check(self, dim: int, sources: Collection[Negatives]) -> None:  # noqa: B027  many take all
        """Raise a ValueError unless the loss is possible in a dimension and with these sources of negatives."""

    @property
    def fused(self) -> SampledContrast | SampledMatch | None:
        """The numbers that fused kernels need; None if they do not compute this loss."""
        return None


class Loss(nn.Module, ABC):
    """A contrastive loss on distributions: three in, one value per anchor out.

    A loss has its settings in a class `Config`, see `LossConfig`.
    """

    Config: ClassVar[type[LossConfig]]
    __call__: Callable[..., Tensor]

    @property
    def mixes_anchors(self) -> bool:
        """Return whether an anchor's value depends on others of its batch, so that runs cannot share one call."""
        return False

    def expect(self, source: Negatives) -> None:
        """Prepare for negatives from a source; most losses treat all alike."""

    def learned_numbers(self) -> dict[str, float]:
        """Return the numbers that training learns, by name."""
        parts = ((name, part()) for name, part in self.named_children() if isinstance(part, PositiveScalar))
        return {name: number.item() for name, number in parts if isinstance(number, Tensor)}

    # Largest number S' B N of similarities held at once; losses that sample compute more in chunks over the samples,
    # with the same value and gradient. At most `CPU_CHUNK_SIZE` on a CPU.
    chunk_size = DEFAULT_CHUNK_SIZE
    # Whether expected similarities may come from float32 tables, as in fast training; these have a bound of their own.
    has_tables = False

    def forward(
        self,
        anchor: VonMisesFisher,
        positive: VonMisesFisher,
        negatives: VonMisesFisher,
        *,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the loss of each anchor, (B,).

        Anchors and positives have the batch (B,), negatives (B, N), or (1, N) if all anchors share them; the generator
        is for losses that sample.
        """
        check_batches(anchor, positive, negatives)
        return self._per_anchor(Triple(anchor, positive, negatives), generator)

    @abstractmethod
    def _per_anchor(self, posteriors: "Triple", generator: torch.Generator | None) -> Tensor:
        """Return the loss of each anchor, (B,), for posteriors whose shapes are right."""


class Triple(NamedTuple):
    """The posteriors that a contrastive loss compares."""

    anchor: VonMisesFisher
    positive: VonMisesFisher
    negatives: VonMisesFisher

    @property
    def n_negatives(self) -> int:
        """Number N of negatives per anchor."""
        return self.negatives.batch_shape[-1]


def in_batch_negatives(batch: VonMisesFisher, n_negatives: int = 1) -> VonMisesFisher:
    """Return each element's next neighbours in the batch, cyclically, as its negatives: batch (B,) -> (B, N).

    With N = 1 this is M = 0 in the paper's tables: nothing is drawn, one other sample of the batch is the negative.
    """
    _require_vmf("batch", batch)
    require(len(batch.batch_shape) == 1, f"The batch must have shape (B,), but got {tuple(batch.batch_shape)}.")
    size = batch.batch_shape[0]
    require(
        1 <= n_negatives < size,
        f"`1 <= n_negatives < batch size` must hold, but got {n_negatives} for a batch of {size}.",
    )
    device = batch.mu.device
    steps = torch.arange(1, n_negatives + 1, device=device)
    index = (torch.arange(size, device=device).unsqueeze(-1) + steps) % size
    return VonMisesFisher(batch.mu[index], batch.kappa[index], validate_args=False, law=batch.law)


def check_batches(anchor: VonMisesFisher, positive: VonMisesFisher, negatives: VonMisesFisher) -> None:
    """Raise a ValueError unless the three distributions have the shapes that `Loss.forward` requires."""
    named = {"anchor": anchor, "positive": positive, "negatives": negatives}
    for name, distribution in named.items():
        _require_vmf(name, distribution)
    dtypes = {name: str(distribution.mu.dtype) for name, distribution in named.items()}
    require(len(set(dtypes.values())) == 1, f"anchor, positive and negatives need the same dtype, but got {dtypes}.")
    dims = {anchor.dim, positive.dim, negatives.dim}
    require(len(dims) == 1, f"anchor, positive and negatives must have the same dimension, but got {sorted(dims)}.")
    a, p, n = (tuple(d.batch_shape) for d in (anchor, positive, negatives))
    require(
        len(a) == 1 and a == p and a[0] >= 1,
        f"anchor and positive must have the same batch shape (B,) with B >= 1, but got {a} and {p}.",
    )
    require(
        len(n) == 2 and n[0] in (1, a[0]) and n[1] >= 1,
        f"negatives must have batch shape ({a[0]}, N) or (1, N) with N >= 1, but got {n}; "
        f"use in_batch_negatives for negatives from the batch.",
    )


def _require_vmf(name: str, distribution: object) -> None:
    kind = type(distribution).__name__
    require(isinstance(distribution, VonMisesFisher), f"`{name}` must be a VonMisesFisher, but got a {kind}.")


def require_member(name: str, value: object, members: type[Enum]) -> None:
    """Raise a ValueError unless a setting is a member of its enum: a string would silently take the other branch."""
    choices = ", ".join(str(member) for member in members)
    require(isinstance(value, members), f"`{name}` must be one of {choices}, but got {value!r}.")


def require_positive(name: str, value: float) -> None:
    """Raise a ValueError unless a setting is a positive finite number."""
    require(0 < value < math.inf, f"`0 < {name} < inf` must hold, but got {value}.")


def require_count(name: str, value: int) -> None:
    """Raise a ValueError unless a setting is a whole number of at least 1."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    require(whole and value >= 1, f"`{name} >= 1` must hold for a whole number, but got {value}.")


def require(condition: bool, rule: str) -> None:
    """Raise a ValueError that states the rule unless the condition holds."""
    if not condition:
        raise ValueError(rule)


def contrastive_log_ratio(positive: Tensor, negatives: Tensor, positive_weight: float) -> Tensor:
    """Return the log of e^s / (w e^s + 1/N sum_n e^{s_n}), (..., B), of similarities (..., B) and (..., B, N).

    It is never positive for a weight w >= 1.
    """
    gap = torch.logsumexp(negatives, dim=-1) - math.log(negatives.shape[-1]) - positive
    if positive_weight == 0:
        return -gap
    return -torch.logaddexp(gap, torch.full_like(gap, math.log(positive_weight)))


def over_samples(
    reduce_chunk: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
    posteriors: Triple,
    n_samples: int,
    chunk_size: int,
    generator: torch.Generator | None,
) -> list[tuple[Tensor, ...]]:
    """Draw S cosines per pair, in chunks over S, and reduce each chunk.

    Each anchor sample z_k is paired with one fresh sample of its positive and one of each of its negatives. Negatives
    that all anchors share are sampled once for all of them, so that one matrix product per k gives the cosines. Each
    anchor's loss has the same law as with samples of its own, but the anchors' losses are no longer independent.

    The random numbers are drawn at once, so that neither value nor gradient depends on the chunk size; with more than
    one chunk, the forward pass keeps only the reduction of a chunk, and the backward pass computes the chunk again.

    Args:
        reduce_chunk: Takes cosines z.z+ (S', B) and z.z- (S', B, N), returns tensors.
        posteriors: Batches (B,), (B,) and (B, N) or (1, N).
        n_samples: S.
        chunk_size: As `Loss.chunk_size`.
        generator: Source of randomness.
    """
    anchor, positive, negatives = posteriors
    (n_anchors,), n_negatives = anchor.batch_shape, posteriors.n_negatives
    are_common = negatives.batch_shape[0] == 1
    z = anchor.rsample((n_samples,), generator)
    of_positive = z.new_empty(2, n_samples, n_anchors).normal_(generator=generator)
    if are_common:  # samples, (S, 1, N, D)
        of_negatives = negatives.rsample((n_samples,), generator)
    else:  # normals, (2, S, B, N)
        of_negatives = z.new_empty(2, n_samples, n_anchors, n_negatives).normal_(generator=generator)

    def reduce(z: Tensor, of_positive: Tensor, of_negatives: Tensor) -> tuple[Tensor, ...]:
        with torch.autocast(z.device.type, enabled=False):  # in full precision, like torch's own losses
            if are_common:
                repelling = z @ of_negatives.squeeze(1).mT
            else:
                cosines = torch.einsum("sbd,bnd->sbn", z, negatives.mu)
                repelling = negatives.rsample_cosine(cosines, of_negatives)
            return reduce_chunk(positive.rsample_cosine((z * positive.mu).sum(-1), of_positive), repelling)

    if z.device.type == "cpu":
        chunk_size = min(chunk_size, CPU_CHUNK_SIZE)
    length = max(1, chunk_size // (n_anchors * n_negatives))
    chunks = zip(
        z.split(length),
        of_positive.split(length, dim=1),
        of_negatives.split(length, dim=0 if are_common else 1),
        strict=True,
    )
    if length >= n_samples:
        return [reduce(*chunk) for chunk in chunks]
    return [checkpoint(reduce, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]
