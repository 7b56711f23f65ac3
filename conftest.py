"""Which modules pytest looks for examples in."""

from importlib.util import find_spec

# The kernels need Triton, which comes with torch's CUDA builds alone.
_OF_TRITON = ["pcl/kernels/*.py", "pcl/training/fused_step.py", "tests/support/kernel_cases.py"]
collect_ignore_glob = [] if find_spec("triton") else _OF_TRITON
