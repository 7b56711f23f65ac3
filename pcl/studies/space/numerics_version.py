"""Numerics version of a run. Imports nothing: readers of records need it too."""

# Bump it when equal configurations give new numbers: old results are then not reused. It was not bumped for
# - limits of kappa above 1e6, and of ranges that are only rounding: the numbers before were wrong;
# - kernels on GPUs for HIB, images and learned scales: they draw other random numbers by the same law, and no GPU
#   repeats a training to the bit;
# - deep mu networks in half precision on GPUs, where products were in TF32: both have ten bits of mantissa;
# - inputs from a bank in kappa's phase on GPUs: each has the law of a new one, and is trained on about 16 times;
# - tables of similarities on a CPU (`exact`): they change gradients by less than 1e-3 of the largest;
# - drawn partners with common negatives, whose samples all anchors have in common now: each loss has the same law.
MATHS_VERSION = 4
