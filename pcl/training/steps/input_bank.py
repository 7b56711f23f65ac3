"""Inputs that are encoded once and drawn many times, for a phase that trains kappa alone.

In such a phase, an input's mu is as fixed as its truth, but each anchor has negatives of its own: at the paper's size,
encoding all of them is most of a batch's arithmetic. A bank holds a million inputs with everything that is fixed. A
batch draws from it, with replacement, and replaces its oldest inputs by new ones, a sixteenth of what it draws. So
every input has the same law as before and is drawn about sixteen times, each time among others and with new latents.

Axes: R runs, P places, D dim.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pcl.tasks.pairs import Pairs

_PLACES = 2**20
_DRAWS = 16  # of an input, on average, before it is replaced
_BLOCK = 2**14  # inputs encoded at once, which bounds memory


class InputBank:
    """A bank of inputs, of which batches hold the numbers; it is an `InputSource`.

    Args:
        pairs: Source of inputs and their truths.
        encode: Map from inputs (R, n, dim_x) to their modes (R, n, D).
        n_drawn: Inputs that a batch draws for each run.
        generator: Source of randomness.
        n_places: Number of inputs held for each run, a power of two.
    """

    def __init__(
        self,
        pairs: Pairs,
        encode: Callable[[Tensor], Tensor],
        n_drawn: int,
        generator: torch.Generator,
        n_places: int = _PLACES,
    ) -> None:
        self._pairs, self._encode = pairs, encode
        self.n_new = min(n_places, 2 ** (max(1, n_drawn // _DRAWS).bit_length() - 1))
        self._n_places = n_places
        block = max(self.n_new, min(_BLOCK, n_places))
        blocks = [self._made(block, generator) for _ in range(n_places // block)]
        self._columns = [torch.cat(parts, dim=1) for parts in zip(*blocks, strict=True)]
        self._first = n_places * torch.arange(pairs.n_runs, device=generator.device).view(-1, 1, 1)

    def renew(self, step: Tensor, generator: torch.Generator) -> None:
        """Replace the oldest inputs; `step` is the number of the batch, on the device."""
        turn = step % (self._n_places // self.n_new)
        for column, new in zip(self._columns, self._made(self.n_new, generator), strict=True):
            column.unflatten(1, (-1, self.n_new)).index_copy_(1, turn.view(1), new.unsqueeze(1))

    def draw_inputs(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw the numbers of n inputs for every run, (R, n, 1)."""
        shape = (self._pairs.n_runs, n, 1)
        return torch.randint(self._n_places, shape, device=generator.device, generator=generator) + self._first

    def parameters_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the true mu (R, n, D) and kappa (R, n) of inputs with these numbers."""
        return self._at(2, x), self._at(3, x).squeeze(-1)

    def inputs_and_modes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs (R, n, dim_x) with these numbers, and their modes (R, n, D) by the encoder."""
        return self._at(0, x), self._at(1, x)

    def _at(self, column: int, x: Tensor) -> Tensor:
        values = self._columns[column]
        return values.flatten(0, 1).index_select(0, x.flatten()).view(*x.shape[:2], values.shape[-1])

    def _made(self, n: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return new inputs, their modes, and their true mu and kappa: each (R, n, ...)."""
        x = self._pairs.draw_inputs(n, generator)
        mu, kappa = self._pairs.parameters_of(x)
        return x, self._encode(x), mu, kappa.unsqueeze(-1)
