"""Larger images, by one setting: other networks and data; runs without it keep their records and keys."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.models import resnet18

from launch import apply, look, train
from launch.grid import main as grid
from launch.shared.backbone_weights import chosen_weights
from pcl.config.run_config import RunConfig
from pcl.data import resolve
from pcl.data.augmentation import crop_and_flip
from pcl.data.embedded import embedded
from pcl.encoders import ResNetEncoder
from pcl.encoders.stem import LARGE, SMALL, Stem
from pcl.studies.space.trial import Trial
from pcl.training.checkpoint import check_same_config, read_checkpoint
from pcl.training.trained_encoder import TrainedEncoder
from tests.support.commands import called


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty embedded images, enlarged, in folders of two classes."""
    monkeypatch.setenv("PCL_DATA", str(tmp_path / "data"))
    drawn, folder = embedded(n=40, n_train=10).images, tmp_path / "photos"
    for place, pixels in enumerate(drawn.images):
        file = folder / ("even", "odd")[int(drawn.hard_labels[place]) % 2] / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).resize((100, 80)).save(file)
    return folder


def test_runs_without_the_setting_keep_their_records_and_keys() -> None:
    config = RunConfig.of({"task.data": "embedded"}, task="images", scale="smoke")
    assert "task.side" not in config.flat()
    assert "task.side" in config.paths()
    # Of the version before it was added
    keys = {"paper": "4af1650e0e1c0da232cf", "reference": "fc1fa9676a6992a57d33"}
    for profile, key in keys.items():
        recorded = RunConfig.of({"task.data": "embedded"}, task="images", scale="smoke", profile=profile)
        assert Trial(recorded.flat(), (1,), "grid").key == key
    same = RunConfig.of({"task.data": "embedded", "task.side": "32"}, task="images", scale="smoke")
    assert same == config == RunConfig.from_flat({**config.flat(), "task.side": 32})
    assert same.fingerprint() == config.fingerprint()
    large = config.with_values({"task.side": 64})
    assert large.flat()["task.side"] == 64
    assert RunConfig.from_flat(large.flat()) == large
    assert large.fingerprint() != config.fingerprint()
    for side in (31, 513):
        with pytest.raises(ValueError, match=rf"`32 <= task.side <= 512` must hold, but got {side}"):
            config.with_values({"task.side": side})
    for one, other, says in ((large, config, "64 there and the default here"), (config, large, "default there and 64")):
        with pytest.raises(ValueError, match=f"task.side is .*{says}"):
            check_same_config(Path("run.pt"), {"seeds": [1], "config": one.flat()}, other, [1])


def test_images_are_of_the_size_that_is_asked_for(pictures: Path, tmp_path: Path) -> None:
    small, large = (resolve(str(pictures), tmp_path / "data", side=side) for side in (32, 64))
    assert (small.images.shape, large.images.shape) == ((40, 3, 32, 32), (40, 3, 64, 64))
    assert torch.equal(small.hard_labels, large.hard_labels)
    assert small.fingerprint != large.fingerprint
    assert resolve(str(pictures), tmp_path / "data").fingerprint == small.fingerprint  # each has its cache
    with pytest.raises(ValueError, match=r"`task.side=64` needs images of that size, but those of 'embedded' have 32"):
        resolve("embedded", tmp_path, side=64)
    arrays = {"test_images": large.images.permute(0, 2, 3, 1).numpy(), "test_labels": large.hard_labels.numpy()}
    np.savez(tmp_path / "mine.npz", **arrays)
    assert torch.equal(resolve(str(tmp_path / "mine.npz"), tmp_path, side=64).images, large.images)
    with pytest.raises(ValueError, match=r"'mine' have 64 x 64 pixels; set `task.side=64`"):
        resolve(str(tmp_path / "mine.npz"), tmp_path)
    generator = torch.Generator().manual_seed(0)
    moved = crop_and_flip(large.images, torch.zeros(200, dtype=torch.int64), generator)
    assert moved.shape == (200, 3, 64, 64)
    dark = (moved.sum(1) == 0).all(dim=2).sum(1)  # rows
    assert dark.max() == 8  # an eighth of the side


def test_a_network_for_photographs_takes_torchvisions_weights(pictures: Path, tmp_path: Path) -> None:
    assert [Stem.of(side) for side in (32, 48, 64, 224)] == [SMALL, SMALL, LARGE, LARGE]
    theirs = resnet18()
    torch.save(theirs.state_dict(), tmp_path / "theirs.pth")
    data = resolve(str(pictures), tmp_path / "data", side=64)
    name = str(chosen_weights(str(tmp_path / "theirs.pth"), data, 64, "smoke"))
    assert name.startswith("resnet18_large-w64-theirs-")
    config = RunConfig.of({"encoder.weights": name, "encoder.width": 64, "task.side": 64}, task="images", scale="smoke")
    encoder = config.encoder.build_for(config.task.inputs, (0,)).eval()
    assert isinstance(encoder, ResNetEncoder)
    theirs.fc = torch.nn.Identity()
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (LARGE.mean, LARGE.deviation))
    images = data.images[:3]
    expected = theirs.eval()((images / 255 - mean) / deviation)
    features = encoder.nets[0][0]((images - encoder.mean) / encoder.deviation)
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)
    small = resolve(str(pictures), tmp_path / "data")
    with pytest.raises(ValueError, match=r"small images, but conv1.weight is \(64, 3, 7, 7\) instead of \(64, 3, 3"):
        chosen_weights(str(tmp_path / "theirs.pth"), small, 64, "smoke")
    with pytest.raises(ValueError, match=r"needs weights of a resnet18_pooled of that width, for small images, but"):
        chosen_weights(name, small, 64, "smoke")


def test_training_and_application_at_64_pixels(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(main: Callable[[], None], *words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["launch/x.py", *words, "--device", "cpu"])
        main()

    checkpoint = tmp_path / "run.pt"
    settings = ("--set", "task.side=64", "--set", "task.augmentation=crop_flip", "--set", "encoder.width=2")
    kind = ("--task", "images", "--data", str(pictures), "--scale", "smoke")
    call(train.main, *kind, *settings, "--checkpoint", str(checkpoint))
    assert read_checkpoint(checkpoint)["config"]["task.side"] == 64
    trained = TrainedEncoder.read(checkpoint)
    assert trained.encode(torch.zeros(2, 3, 64, 64)).mu.shape == (2, 8)
    with pytest.raises(ValueError, match=r"must be of shape \(N, 3, 64, 64\), but got \(2, 3, 32, 32\)"):
        trained.encode(torch.zeros(2, 3, 32, 32))
    call(look.main, str(checkpoint), "--output", str(tmp_path / "look"))
    assert (tmp_path / "look" / "certain.png").is_file()
    call(apply.main, str(checkpoint), str(pictures), "--output", str(tmp_path / "out"))
    assert len((tmp_path / "out" / "kappa.csv").read_text().splitlines()) == 41


@pytest.mark.slow
def test_a_study_at_64_pixels_goes_on(pictures: Path, tmp_path: Path) -> None:
    where = ("--storage", str(tmp_path / "runs"), "--runner", "inline", "--no-finalize")
    small = ("--scale", "smoke", "--seeds", "1", "--set", "encoder.width=2", "--set", "task.n_eval=8")
    what = ("--space", "images_mcinfonce", "--search", "random", "--trials", "1", "--data", str(pictures))
    words = (*what, "--set", "task.side=64", "--name", "s", *small)
    begun = called("launch/grid.py", grid, *words, *where)
    assert begun.returncode == 0, begun.stderr
    (best,) = (tmp_path / "runs" / "s").glob("best.yaml")
    assert "task.side: 64" in best.read_text()
    (trial, *_) = (tmp_path / "runs" / "s" / "trials").iterdir()
    assert json.loads((trial / "trial.json").read_text())["data"].startswith("photos-")
    again = called("launch/grid.py", grid, "--resume", "s", *where)
    assert again.returncode == 0, again.stderr
    Image.new("RGB", (9, 9)).save(pictures / "odd" / "new.png")
    changed = called("launch/grid.py", grid, "--resume", "s", *where)
    assert (changed.returncode, "have changed since" in changed.stderr) == (2, True)
