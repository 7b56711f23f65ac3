"""Ablations of the profiles: each of their settings alone, and the factors of the exact recipe."""
