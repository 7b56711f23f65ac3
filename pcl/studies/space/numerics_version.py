"""Numerics version of a run. Imports nothing: readers of records need it too."""

# Bump it when equal configurations give new numbers: old results are then not reused. It was not bumped for the limits
# of kappa above 1e6 and of ranges that are only rounding, where the numbers before were wrong, nor for HIB's kernels on
# GPUs, which draw other random numbers by the same law: no GPU repeats a training to the bit. Nor was it for tables of
# similarities on a CPU (`exact`), which change gradients by less than 1e-3 of the largest; nor for images under `exact`
# on GPUs, which have come to their kernels since and draw other random numbers by the same law.
MATHS_VERSION = 4
