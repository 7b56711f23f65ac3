"""Threads of tests, and which modules pytest looks for examples in."""

import os
from importlib.util import find_spec

# Tests share the cores out between processes, which are forked from one that has imported numpy and has no threads.
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

# The kernels, and what uses them, need Triton, which comes with torch's CUDA builds alone.
NEEDS_TRITON = [
    "pcl/kernels/*.py", "pcl/training/steps/fused_*.py", "pcl/training/steps/integrated_step.py",
    "tests/support/*_cases.py", "tests/support/image_step_case.py", "tests/support/kernel_compilation.py",
]  # fmt: skip
collect_ignore_glob = [] if find_spec("triton") else NEEDS_TRITON
