"""Kernels of the profile `exact`: guided samples of anchors, partners integrated in closed form."""
