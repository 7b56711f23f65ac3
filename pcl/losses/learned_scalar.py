"""Numbers of a loss that training may learn."""

from enum import Enum

import torch
from torch import Tensor, nn


class LearnedAs(Enum):
    """The parameter behind a positive number that is learned."""

    LOG = "log"  # the logarithm of its ratio to the initial value
    VALUE = "value"  # the number itself, as the released code has it


_SMALLEST_LEARNED = 1e-6  # of a number that is learned as itself


class PositiveScalar(nn.Module):
    """A positive number that is either fixed or learned, from exactly the configured number.

    Learned as a logarithm, it is its initial value times e^f with the parameter f. Learned as a value, the parameter
    may fall to 0 or below, where the release continues with a meaningless number; here it then counts as 1e-6, and its
    gradient passes unchanged, so that it can recover. A fixed number is not part of the state: the config defines it.
    """

    def __init__(self, initial: float, learned: bool, learned_as: LearnedAs = LearnedAs.LOG) -> None:
        super().__init__()
        self.initial = initial
        self.log_factor = nn.Parameter(torch.zeros(())) if learned and learned_as is LearnedAs.LOG else None
        self.value = nn.Parameter(torch.tensor(float(initial))) if learned and learned_as is LearnedAs.VALUE else None

    def forward(self) -> Tensor | float:
        """Return the number."""
        if self.value is not None:
            return self.value + (_SMALLEST_LEARNED - self.value).clamp(min=0).detach()
        return self.initial if self.log_factor is None else self.initial * self.log_factor.exp()
