"""Numerics version of a run. Imports nothing: readers of records need it too."""

# Raised whenever the same configuration gives other numbers than before: old results are then not found again. It was
# not for the limits of kappa above 1e6 and of ranges that are only rounding, where the numbers before were wrong.
MATHS_VERSION = 3
