"""Scales of runs. Imports nothing: parsers need their names at once."""

from enum import Enum


class Scale(Enum):
    """The size of a run; it changes lengths, counts and the width of networks, never what is compared."""

    SMOKE = "smoke"  # seconds, for tests
    QUICK = "quick"  # up to a minute a seed on two CPU cores
    PAPER = "paper"  # the published sizes
