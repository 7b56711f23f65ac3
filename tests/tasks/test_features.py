"""Features given as an array: what is refused, the law of pairs, training, and studies that know their data."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from launch import train
from launch.grid import main as grid
from pcl.config.run_config import RunConfig
from pcl.data.arrays import FeatureSet, read_features
from pcl.data.folds import split
from pcl.studies.api.loaded_encoder import load_encoder
from pcl.tasks import FeatureTask, Negatives
from tests.support.commands import called

N, F, C = 60, 5, 3


def arrays(**changes: Any) -> dict[str, Any]:
    """Three classes about different centres, in a mixed order."""
    random = np.random.default_rng(0)
    labels = random.permutation(np.arange(N) % C)
    features = np.eye(C, F)[labels] * 2 + random.normal(scale=0.1, size=(N, F))
    return {"features": features.astype(np.float32), "labels": labels, **changes}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "my features.npz", **arrays())
    return tmp_path / "my features.npz"


def test_features_are_read(file: Path) -> None:
    data = read_features(str(file))
    assert (data.name, data.classes, data.features.shape) == ("my_features", ("0", "1", "2"), (N, F))
    assert data.soft_labels.argmax(1).tolist() == arrays()["labels"].tolist()
    probs = np.full((N, C), 1 / C)
    np.savez(file, **arrays(probs=probs, classes=np.array(["a", "b", "c"])))
    soft = read_features(str(file))
    assert soft.classes == ("a", "b", "c")
    assert torch.allclose(soft.soft_labels, torch.full((N, C), 1 / C))
    assert soft.fingerprint != data.fingerprint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.zeros((N, F), np.int64)}, r"features must be floats \(N, F\) with N labels, but got int64"),
        ({"features": np.zeros((N - 1, F))}, r"but got float64 \(59, 5\) and 60 labels"),
        ({"features": np.zeros(N)}, r"features must be floats \(N, F\)"),
        ({"features": np.full((N, F), np.nan)}, r"must be finite, with a standard deviation over all from 0.01 to 100"),
        ({"features": 1e4 * np.eye(N)}, r"standardise them"),
        ({"labels": np.zeros(N)}, r"labels must be whole numbers \(N,\), but got float64"),
        ({"labels": np.full(N, -1)}, r"labels must not be negative, but one is -1"),
        ({"labels": np.zeros(N, np.int64)}, r"shares of at least two classes"),
        ({"labels": np.arange(N) * 9}, r"without large gaps"),
        ({"probs": np.full((N, C), 0.5)}, r"that sum to 1"),
        ({"probs": np.full((N - 1, C), 1 / C)}, r"but got \(59, 3\) for 60 rows"),
    ],
)
def test_what_is_no_set_of_features_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "f.npz", **arrays(**changes))
    with pytest.raises(ValueError, match=message):
        read_features(str(tmp_path / "f.npz"))


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.npz").write_bytes(b"PK")
    np.savez(tmp_path / "images.npz", test_images=np.zeros(3))
    for name, message in (("none.npz", "is not one"), ("cut.npz", "cut off"), ("images.npz", "features and labels")):
        with pytest.raises(ValueError, match=message):
            read_features(str(tmp_path / name))


def test_pairs_follow_the_shares(generator: torch.Generator) -> None:
    """Positives have P(c|x+) with c from P(C|x), negatives 1 - P(c|x-), over the training part of each run's fold."""
    shares = torch.softmax(3 * torch.randn(20, 2, generator=generator), -1)
    data = FeatureSet("f", ("a", "b"), torch.arange(20.0).unsqueeze(1), shares)
    task = FeatureTask(FeatureTask.Config(n_features=1, n_eval=3), data, [0, 1])
    batch = task.draw(20_000, Negatives.DRAWN, 4, torch.Generator().manual_seed(1))
    assert batch.negatives.shape == (2, 20_000, 4, 1)
    for run in range(2):
        part = split(20, run).train
        p = shares[part].double()
        positive = p / len(p) @ (p / p.sum(0)).T  # of anchor and place together
        negative = p / len(p) @ ((1 - p) / (1 - p).sum(0)).T
        for found, law in ((batch.positive[run], positive), (batch.negatives[run], negative)):
            anchors, others = (torch.searchsorted(part, x.flatten().long()) for x in (batch.anchor[run], found))
            pairs = anchors.repeat_interleave(len(others) // len(anchors)) * len(p) + others
            counts = torch.bincount(pairs, minlength=len(p) ** 2).double()
            assert ((counts / len(pairs) - law.flatten()).abs() < 5 * (law.flatten() / 20_000).sqrt()).all()
    assert task.draw(4, Negatives.IN_BATCH, 4, torch.Generator()).negatives.shape == (2, 4, 0, 1)
    with pytest.raises(ValueError, match="they cannot be shared"):
        RunConfig.of({"training.negatives": "shared"}, task="features")


def test_a_training_and_its_encoder(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = ("--task", "features", "--scale", "smoke", "--fidelity", "paper", "--device", "cpu")
    words = (*kind, "--data", str(file), "--set", "training.n_batches=40", "--checkpoint", str(tmp_path / "run.pt"))
    monkeypatch.setattr(sys, "argv", ["launch/train.py", *words])
    train.main()
    results = json.loads((tmp_path / "run.pt.json").read_text())
    assert (results["config"]["task.data"], results["config"]["task.n_features"]) == (str(file), F)
    (metrics,) = results["by_seed"].values()
    assert metrics["test/recall_at_1"] > 0.9
    assert "test/entropy_rank_corr" not in metrics  # nobody disagrees
    features = read_features(str(file)).features
    file.unlink()
    encoder = load_encoder(tmp_path / "run.pt")
    assert encoder(features).mu.shape == (N, 8)
    for given, message in ((kind, "must be named: `--data FILE.npz`"), ((*kind, "--data", str(file)), "is not one")):
        monkeypatch.setattr(sys, "argv", ["launch/train.py", *given])
        with pytest.raises(ValueError, match=message):
            train.main()


def test_a_study_knows_its_features(file: Path, tmp_path: Path) -> None:
    where = ("--storage", str(tmp_path / "runs"), "--runner", "inline", "--no-finalize")
    words = ("--space", "features_mcinfonce", "--data", str(file), "--scale", "smoke", "--seeds", "1", "--name", "s")
    begun = called("launch/grid.py", grid, *words, *where)
    assert begun.returncode == 0, begun.stderr
    trials = list((tmp_path / "runs" / "s" / "trials").iterdir())
    assert len(trials) == 8
    fingerprint = read_features(str(file)).fingerprint
    assert json.loads((trials[0] / "trial.json").read_text())["data"] == f"my_features-{fingerprint}"
    np.savez(file, **arrays(labels=np.arange(N) % C))
    changed = called("launch/grid.py", grid, "--resume", "s", *where)
    assert (changed.returncode, "have changed since 's' began" in changed.stderr) == (2, True)
    refused = called("launch/grid.py", grid, *words, "--weights", "none", *where)
    assert (refused.returncode, "`--weights` is for spaces of images" in refused.stderr) == (2, True)
