"""Shapes of batches."""

from collections.abc import Sequence

import numpy as np
from torch import Size


def broadcast_shape(*shapes: Sequence[int]) -> Size:
    """Of several shapes together; torch's own function imports a second's worth of modules into every process.

    Raises:
        ValueError: If they do not broadcast.
    """
    return Size(np.broadcast_shapes(*map(tuple, shapes)))
