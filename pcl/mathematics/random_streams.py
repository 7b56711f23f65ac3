"""Independent random streams by purpose: what one part of a run draws never changes what another part draws."""

import hashlib
from collections.abc import Sequence

import torch


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise a ValueError unless there is at least one seed and all are different and from 0 to 2^63 - 1."""
    if not seeds or len(set(seeds)) != len(seeds) or not all(0 <= seed < 2**63 for seed in seeds):
        raise ValueError(f"Seeds must be different whole numbers from 0 to 2^63 - 1, but got {list(seeds)}.")


def mixed_seed(*parts: object) -> int:
    """Return a seed below 2^63 that is a hash of all parts."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def streams(seeds: Sequence[int], purpose: str) -> list[torch.Generator]:
    """Return a CPU generator for each seed, for one purpose."""
    return [torch.Generator().manual_seed(mixed_seed(seed, purpose)) for seed in seeds]


def uniform_inputs(seeds: Sequence[int], purpose: str, n: int, dim_x: int) -> torch.Tensor:
    """Draw n uniform points of the unit cube for each seed, (R, n, dim_x)."""
    return torch.stack([torch.rand(n, dim_x, generator=generator) for generator in streams(seeds, purpose)])
