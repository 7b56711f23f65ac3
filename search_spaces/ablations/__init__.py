"""Ablations: one file each; the file's name is the ablation's name."""
