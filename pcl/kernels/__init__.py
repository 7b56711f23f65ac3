"""Fused CUDA kernels, imported only where there is a CUDA device; `inputs` and `transport` need no Triton."""
