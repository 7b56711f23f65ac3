"""Shapes of batches."""

from collections.abc import Sequence

import numpy as np
from torch import Size


def broadcast_shape(*shapes: Sequence[int]) -> Size:
    """Return the common shape; torch's own function imports modules for a second in every process.

    Raises:
        ValueError: If they do not broadcast.
    """
    return Size(np.broadcast_shapes(*map(tuple, shapes)))
