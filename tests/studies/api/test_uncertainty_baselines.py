"""The ablation of classifiers' certainties as a study: files, and a table with a variant that has no rank."""

import csv
import math
from pathlib import Path

import pytest

import pcl

# At the scale smoke nothing is pretrained.
SETTINGS: dict[str, str | int] = {"task.data": "embedded", "encoder.weights": ""}


@pytest.mark.parametrize("profile", ["reference", pytest.param("exact", marks=pytest.mark.slow)])
def test_it_ends_with_paired_differences(profile: str, tmp_path: Path) -> None:
    told: list[str] = []
    study = pcl.ablate(
        "uncertainty_baselines", profile=profile, scale="smoke", settings=SETTINGS, storage=tmp_path, name="mine",
        say=told.append,
    )  # fmt: skip
    with (study.path / "ablation.csv").open() as file:
        rows = {(row["variant"], row["metric"]): row for row in csv.DictReader(file)}
    labels = ("MCInfoNCE", "softmax entropy", "feature norm", "constant")
    what = ("entropy_rank_corr", "crop_rank_corr", "recall_at_1", "rejection_area")
    metrics = [f"{split}/{metric}" for split in ("test", "last") for metric in what]
    assert set(rows) == {(label, metric) for label in labels for metric in metrics}
    for label in labels[1:3]:
        assert all(rows[label, metric]["paired_seeds"] == "2" for metric in metrics)
        assert all(math.isfinite(float(rows[label, metric]["difference"])) for metric in metrics)
    assert {rows["constant", metric]["mean"] for metric in metrics if metric.endswith("_corr")} == {""}
    of_recall = {rows[label, "test/recall_at_1"]["mean"] for label in labels[1:]}
    assert len(of_recall) == 1  # the same features
    assert any("undefined [smoke]" in line for line in told if line.startswith("constant"))
    assert set(study.trials["status"]) == {"finished"}
