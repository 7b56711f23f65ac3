"""Inputs that are encoded once and drawn many times, for a phase that trains kappa alone.

In such a phase an input's mu is as fixed as its truth, but each anchor has negatives of its own: at the paper's size,
encoding all of them is most of a batch's arithmetic. A bank holds up to a million inputs with everything that is fixed.
A batch draws from it with replacement, and replaces its oldest inputs, one for every 16 that it trains on. An input's
law is that of a new one; it is trained on about 16 times, each time among others and with a new latent. An anchor can
draw itself as its positive, with a probability below 1e-4.

Axes: R runs, D dim.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pcl.tasks.pairs import Pairs

_USES = 16  # of an input, on average, before it is replaced
_MOST_SLOTS = 2**20
_MOST_BYTES = 2**30
_BLOCK = 2**14  # inputs encoded at once, which bounds the memory of activations


def n_slots_of(bytes_per_slot: int, n_used_in_all: int) -> int:
    """Return the size of a bank that pays: it is encoded for a sixteenth of what the phase trains on at most."""
    return max(1, min(_MOST_SLOTS, _MOST_BYTES // bytes_per_slot, n_used_in_all // _USES))


class InputBank:
    """A ring buffer of inputs, of which a batch has the indices; it is an `InputSource`.

    Args:
        pairs: Source of inputs and their truths.
        encode: Map from inputs (R, n, dim_x) to their modes (R, n, D).
        n_used: Number of inputs that a batch trains on, for each run.
        n_slots: Number of inputs held for each run; rounded to a multiple of those that a batch replaces.
        generator: Source of randomness.
    """

    def __init__(
        self, pairs: Pairs, encode: Callable[[Tensor], Tensor], n_used: int, n_slots: int, generator: torch.Generator
    ) -> None:
        self._pairs, self._encode = pairs, encode
        self.n_new = max(1, n_used // _USES)
        self._n_turns = max(1, n_slots // self.n_new)
        self.n_slots = self._n_turns * self.n_new
        self._columns: list[Tensor] = []
        for start in range(0, self.n_slots, _BLOCK):
            block = self._encoded(min(_BLOCK, self.n_slots - start), generator)
            if not self._columns:
                self._columns = [part.new_empty(pairs.n_runs, self.n_slots, part.shape[-1]) for part in block]
            for column, part in zip(self._columns, block, strict=True):
                column[:, start : start + part.shape[1]] = part
        self._first = self.n_slots * torch.arange(pairs.n_runs, device=generator.device).view(-1, 1, 1)

    def renew(self, step: Tensor, generator: torch.Generator) -> None:
        """Replace the oldest inputs; `step` is the number of the batch, on the device."""
        turn = (step % self._n_turns).view(1)
        for column, part in zip(self._columns, self._encoded(self.n_new, generator), strict=True):
            column.unflatten(1, (self._n_turns, self.n_new)).index_copy_(1, turn, part.unsqueeze(1))

    def draw_inputs(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw the indices of n inputs for every run, (R, n, 1)."""
        shape = (self._pairs.n_runs, n, 1)
        return torch.randint(self.n_slots, shape, device=generator.device, generator=generator) + self._first

    def parameters_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the true mu (R, n, D) and kappa (R, n) of inputs with these indices."""
        return self._at(2, x), self._at(3, x).squeeze(-1)

    def inputs_and_modes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs (R, n, dim_x) with these indices, and their modes (R, n, D) by the encoder."""
        return self._at(0, x), self._at(1, x)

    def _at(self, column: int, x: Tensor) -> Tensor:
        values = self._columns[column]
        return values.flatten(0, 1).index_select(0, x.flatten()).view(*x.shape[:2], values.shape[-1])

    def _encoded(self, n: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return new inputs, their modes, and their true mu and kappa: each (R, n, ...)."""
        x = self._pairs.draw_inputs(n, generator)
        mu, kappa = self._pairs.parameters_of(x)
        return x, self._encode(x), mu, kappa.unsqueeze(-1)
