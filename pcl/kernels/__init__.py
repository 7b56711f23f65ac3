"""The fused CUDA path: the same results as the plain one, which stays as its twin.

`transport` and `philox` are plain torch and run anywhere; the modules with kernels need Triton and are imported only
where there is a CUDA device.
"""
