"""Results of one training: as a line on the screen, and as JSON next to its checkpoint."""

import json
import math
from pathlib import Path
from typing import Any

from pcl.metrics import names
from pcl.metrics.undefined import as_json, mean_of, told, told_with_error
from pcl.storage.files import replacing
from pcl.studies.results.statistics import standard_error
from pcl.training.run import Report, Run

_SHOWN = {
    names.TRAIN_LOSS: "loss", names.MU_MAE: "mu MAE", names.MU_RANK_CORR: "mu rank", names.KAPPA_MAE: "kappa MAE",
    names.KAPPA_RANK_CORR: "kappa rank", names.KAPPA_MEAN: "mean kappa",
    names.COVERAGE_90: "in 90% cap", "learned/kappa_pos": "kappa_pos",
    names.VAL_CROP: "crop", names.VAL_ENTROPY: "entropy", names.VAL_RECALL: "Recall@1",
    names.TEST_CROP: "test crop", names.TEST_ENTROPY: "test entropy", names.TEST_RECALL: "test Recall@1",
    names.TEST_REJECTION: "test Recall@1 by rejection",
    names.LAST_CROP: "last crop", names.LAST_ENTROPY: "last entropy", names.LAST_RECALL: "last Recall@1",
    names.LAST_REJECTION: "last Recall@1 by rejection",
}  # fmt: skip


def shown(metrics: dict[str, float]) -> str:
    """Return the main metrics as one line."""
    return "  ".join(f"{label} {told(metrics[key], '.4g')}" for key, label in _SHOWN.items() if key in metrics)


def summary(by_seed: list[dict[str, float]]) -> str:
    """Return mean and standard error of the main metrics, with the number of seeds that lack a value."""
    parts = []
    for key, label in _SHOWN.items():
        values = [metrics[key] for metrics in by_seed if key in metrics]
        if values:
            parts.append(f"{label} {told_with_error(mean_of(values), standard_error(values), '.4g', '.2g')}")
            n_undefined = sum(map(math.isnan, values))
            parts[-1] += f" (in {n_undefined} of {len(values)} seeds)" if n_undefined else ""
    return f"mean ± standard error of {len(by_seed)} seeds: " + "  ".join(parts)


def write_results(checkpoint: Path, training: Run, report: Report) -> None:
    """Write a report next to the training's checkpoint."""
    by_seed = {seed: {key: as_json(value) for key, value in m.items()} for seed, m in report.by_seed.items()}
    failures = {seed: str(failure) for seed, failure in report.failures.items()}
    content: dict[str, Any] = {
        "config": training.config.flat(), "batch": report.batch, "seconds": report.seconds,
        "device": str(training.device), "by_seed": by_seed, "failures": failures,
    }  # fmt: skip
    with replacing(results_of(checkpoint)) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")


def results_of(checkpoint: Path) -> Path:
    """Return the results file next to a checkpoint."""
    return checkpoint.with_name(f"{checkpoint.name}.json")
