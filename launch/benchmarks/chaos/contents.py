"""Contents of a study's folder and of MLflow, for a bitwise comparison."""

import hashlib
import json
from pathlib import Path
from typing import Any

from launch.testbed.mlflow import count
from pcl.studies.ledger.folders import StudyFolder
from pcl.training.checkpoint import read_checkpoint


def contents(path: Path, uri: str) -> dict[str, Any]:
    """Return the fields of a study's `Findings`."""
    folder = StudyFolder(path)
    reports = {trial.key: [_report(row.batch, row.by_seed) for row in trial.rows()] for trial in folder.trials()}
    best = json.loads((path / "summary.json").read_text())["best"]
    n_doubled, n_missing = count(uri, folder, list(reports))
    encoders = {trial.key: _digest(trial.checkpoint) for trial in folder.trials()}
    return {
        "reports": reports, "best": best["key"] if best else "", "encoders": encoders, "n_doubled": n_doubled,
        "n_missing": n_missing,
    }  # fmt: skip


def _report(batch: int, by_seed: dict[int, dict[str, float]]) -> dict[str, Any]:
    kept = {str(seed): {k: v for k, v in m.items() if not k.startswith("time/")} for seed, m in by_seed.items()}
    return {"batch": batch, "by_seed": kept}


def _digest(checkpoint: Path) -> str:
    """Return a digest of a checkpoint without its timings, or an empty text if there is none."""
    if not checkpoint.exists():
        return ""
    content = read_checkpoint(checkpoint)
    return digest([content["batch"], content["stepper"]])


def digest(content: object) -> str:
    """Return a digest of nested containers, which covers every bit of a tensor, its type and its shape."""
    return hashlib.sha256(repr(_hashed(content)).encode()).hexdigest()


def _hashed(content: object) -> object:
    """Return the same containers with a digest in place of each tensor."""
    import torch  # noqa: PLC0415  bench.py -h answers at once

    if isinstance(content, torch.Tensor):
        flat = content.detach().cpu().contiguous().reshape(-1).view(torch.uint8)  # NumPy lacks bfloat16
        return str(content.dtype), tuple(content.shape), hashlib.sha256(flat.numpy().tobytes()).hexdigest()
    if isinstance(content, dict):
        return {key: _hashed(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return type(content).__name__, [_hashed(value) for value in content]
    return content
