"""The benchmarks of `launch/bench.py`, one module each."""
