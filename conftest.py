"""Which modules pytest looks for examples in."""

from importlib.util import find_spec

# The kernels need Triton, which comes with torch's CUDA builds alone.
collect_ignore_glob = [] if find_spec("triton") else ["pcl/kernels/*.py", "tests/kernel_cases.py"]
