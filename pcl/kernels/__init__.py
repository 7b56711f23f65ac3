"""Fused CUDA kernels: the same results as plain torch, which stays as their reference.

`transport` and `philox` are plain torch and run anywhere; the modules with kernels need Triton and are imported only
where there is a CUDA device.
"""
