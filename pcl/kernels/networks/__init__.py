"""Layers of the encoders as kernels."""
