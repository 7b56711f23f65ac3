"""The benchmarks of `launch/bench.py`, one module each: its function `measure` prints a table and returns the rows."""

from typing import Any

Row = dict[str, Any]
