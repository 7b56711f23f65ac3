"""Ablations on images."""
