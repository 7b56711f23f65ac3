"""Metrics: tensors in, floats out."""
