"""A benchmark's table as JSON, with the date, the hardware and the versions."""

import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch

import pcl
from pcl.storage.files import replacing


def write_record(path: Path, benchmark: str, rows: list[dict[str, Any]]) -> None:
    """Write a benchmark's rows and what they were measured on."""
    content = {"benchmark": benchmark, **_circumstances(), "rows": rows}
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2) + "\n")


def _circumstances() -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    modules = {"pcl": pcl, "torch": torch, "numpy": np, "scipy": scipy}
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "hardware": {"cpu": cpu, "cores": os.cpu_count(), "threads": torch.get_num_threads(), "gpu": gpu},
        "versions": {"python": platform.python_version(), **{n: m.__version__ for n, m in modules.items()}},
    }
