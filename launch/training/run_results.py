"""Results of one training: as a line on the screen, and as JSON beside its checkpoint."""

import json
import math
from pathlib import Path
from typing import Any

from pcl.metrics.undefined import as_json, mean_of, told, told_with_error
from pcl.storage.files import replacing
from pcl.studies.results.statistics import standard_error
from pcl.training.run import Report, Run

_SHOWN = {
    "train/loss": "loss", "eval/mu_mae": "mu MAE", "eval/mu_rank_corr": "mu rank", "eval/kappa_mae": "kappa MAE",
    "eval/kappa_rank_corr": "kappa rank", "eval/kappa_mean": "mean kappa",
    "val/crop_rank_corr": "crop", "val/entropy_rank_corr": "entropy", "val/recall_at_1": "Recall@1",
    "test/crop_rank_corr": "test crop", "test/entropy_rank_corr": "test entropy",
    "test/recall_at_1": "test Recall@1",
}  # fmt: skip


def shown(metrics: dict[str, float]) -> str:
    """Return the main metrics in a line."""
    return "  ".join(f"{label} {told(metrics[key], '.4g')}" for key, label in _SHOWN.items() if key in metrics)


def summary(by_seed: list[dict[str, float]]) -> str:
    """Return mean and standard error of the main metrics; where seeds have none, how many of them."""
    parts = []
    for key, label in _SHOWN.items():
        values = [metrics[key] for metrics in by_seed if key in metrics]
        if values:
            parts.append(f"{label} {told_with_error(mean_of(values), standard_error(values), '.4g', '.2g')}")
            n_undefined = sum(map(math.isnan, values))
            parts[-1] += f" (in {n_undefined} of {len(values)} seeds)" if n_undefined else ""
    return f"mean ± standard error of {len(by_seed)} seeds: " + "  ".join(parts)


def write_results(checkpoint: Path, training: Run, report: Report) -> None:
    """Write a report beside the training's checkpoint."""
    by_seed = {seed: {key: as_json(value) for key, value in m.items()} for seed, m in report.by_seed.items()}
    failures = {seed: str(failure) for seed, failure in report.failures.items()}
    content: dict[str, Any] = {
        "config": training.config.flat(), "batch": report.batch, "seconds": report.seconds,
        "device": str(training.device), "by_seed": by_seed, "failures": failures,
    }  # fmt: skip
    with replacing(results_of(checkpoint)) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")


def results_of(checkpoint: Path) -> Path:
    """Return the file of results beside a checkpoint."""
    return checkpoint.with_name(f"{checkpoint.name}.json")
