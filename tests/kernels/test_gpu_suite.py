"""The tests marked gpu: they are found where only torch is installed, and leave torch as it was."""

import ast
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch.distributions import Distribution

from launch.testbed.processes import DEADLINE_S
from tests.support.torch_state import restored, synchronization_forbidden
from tests.test_architecture import ROOT

EXPECTED_SECONDS = 35
WITHOUT_SERVICES = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {
            "aiohttp", "mlflow", "moto", "optuna", "platformdirs", "ray", "requests", "threadpoolctl", "xdist",
        }:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
"""


def marked() -> set[str]:
    """Files and functions that carry the mark, by their text."""
    return {
        f"{path.relative_to(ROOT)}::{node.name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(mark) == "pytest.mark.gpu" for mark in node.decorator_list)
    }


@pytest.mark.slow
def test_gpu_tests_are_found_without_services(tmp_path: Path) -> None:
    """By `make test-gpu`, none is left out."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_SERVICES)
    command = subprocess.run(
        ["make", "test-gpu", f"PY={sys.executable}", "ARGS=--collect-only -q"],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "MAKEFLAGS": ""},
        cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert command.returncode == 0, command.stdout + command.stderr
    found = {line for line in command.stdout.splitlines() if line.startswith("tests/") and "::" in line}
    assert len(found) > 30
    assert {line.partition("[")[0] for line in found} == marked()


def test_switches_of_torch_are_put_back() -> None:
    with restored():
        torch.use_deterministic_algorithms(True)
        torch.set_default_dtype(torch.float64)
        torch.set_float32_matmul_precision("medium")
        torch.backends.cudnn.benchmark = True
        torch.set_num_threads(2)
        torch.set_grad_enabled(False)
        Distribution.set_default_validate_args(False)
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_default_dtype() is torch.float32
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.benchmark
    assert torch.get_num_threads() == 1
    assert torch.is_grad_enabled()
    assert Distribution._validate_args


def test_waiting_for_the_gpu_is_forbidden_only_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch warns after it has turned the mode on; warnings are errors here."""
    modes = []

    def set_mode(mode: str) -> None:
        modes.append(mode)
        warnings.warn("Synchronization debug mode is a prototype feature", UserWarning, stacklevel=1)

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    with pytest.raises(ZeroDivisionError), synchronization_forbidden():
        modes.append(1 / 0)
    assert modes == ["error", "default"]
