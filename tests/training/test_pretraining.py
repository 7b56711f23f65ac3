"""Pretrained backbones: their training, their files, how encoders start from them; what training from scratch needs."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pcl.config.run_config import RunConfig
from pcl.data.embedded import embedded
from pcl.data.images import ImageSet
from pcl.data.weights import Weights, keep_weights, kept_weights, load_weights, named_weights, weights_folder
from pcl.encoders import ResNetEncoder
from pcl.encoders.stem import SMALL
from pcl.training.pretraining import Pretraining, Recipe
from pcl.training.run import Run

RECIPE = Recipe(width=2, epochs=5, batch_size=20, lr=0.05, erased=0)


@pytest.fixture(scope="module")
def data() -> ImageSet:
    return embedded(n=200, n_train=300).images


@pytest.fixture(scope="module")
def weights(data: ImageSet) -> Weights:
    training = Pretraining(data, RECIPE)
    epochs = list(training)
    assert [epoch.epoch for epoch in epochs] == list(range(1, 6))
    assert epochs[-1].loss < epochs[0].loss
    assert training.batch == training.n_batches == 5 * 15
    return training.weights()


@pytest.fixture
def kept(weights: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The weights' file in a data folder of its own."""
    monkeypatch.setenv("PCL_DATA", str(tmp_path))
    return keep_weights(weights, weights_folder())


def test_a_backbone_learns_the_classes(weights: Weights) -> None:
    assert weights.accuracy > 0.25  # of ten classes
    assert (weights.kind, weights.width, weights.data, weights.epochs, weights.batch_size) == (
        SMALL.kind, 2, "embedded", 5, 20,
    )  # fmt: skip
    assert all(value.is_contiguous() and value.isfinite().all() for value in weights.state.values())


def test_the_seed_decides(data: ImageSet) -> None:
    def trained(seed: int) -> Weights:
        training = Pretraining(data, Recipe(2, 1, 100, 0.05, seed))
        for _ in training:
            pass
        return training.weights()

    first, again, other = trained(1), trained(1), trained(2)
    assert first.digest == again.digest != other.digest


def test_accuracy_is_that_of_a_loop_over_images(data: ImageSet) -> None:
    training = Pretraining(data, RECIPE)
    n_right = 0
    training.net.eval()
    with torch.no_grad():
        for image, label in zip(data.images, data.hard_labels, strict=True):
            logits = training._logits(image.unsqueeze(0))
            n_right += int(logits.argmax()) == int(label)
    assert training.accuracy() == n_right / len(data.images)


def test_few_images_and_bad_recipes(data: ImageSet) -> None:
    assert Pretraining(data, Recipe(2, 3, 1000)).n_batches == 3  # all in one step
    assert Recipe.suited(data, 8).batch_size < Recipe().batch_size
    without = replace(data, train_images=data.train_images[:0], train_labels=data.train_labels[:0])
    with pytest.raises(ValueError, match="training images apart from the folds, which 'embedded' lacks"):
        Pretraining(without, RECIPE)
    for bad in ({"width": 0}, {"epochs": 0}, {"batch_size": 1}, {"lr": 0.0}, {"lr": math.nan}, {"seed": -1}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Recipe(**bad)  # type: ignore[arg-type]


def test_files_keep_everything(kept: Path, weights: Weights) -> None:
    assert kept.name == weights.file_name
    assert kept.name.endswith(f"-{weights.digest}.pt")
    again = load_weights(kept)
    assert again.facts == weights.facts
    assert all(torch.equal(again.state[name], value) for name, value in weights.state.items())
    assert named_weights(kept.name).digest == named_weights(str(kept)).digest == weights.digest
    assert [file.name for file in kept.parent.iterdir()] == [kept.name]  # nothing unfinished beside it


def test_kept_ones_are_found_by_images_and_width(kept: Path, weights: Weights) -> None:
    better = replace(weights, accuracy=0.99)
    for other in (better, replace(weights, width=3), replace(weights, fingerprint="0" * 16)):
        keep_weights(other, kept.parent)
    found = kept_weights(kept.parent, SMALL.kind, 2, weights.fingerprint)
    assert [one.digest for one in found] == [better.digest, weights.digest]
    assert not kept_weights(kept.parent / "nowhere", SMALL.kind, 2, weights.fingerprint)


def test_damaged_and_foreign_files_are_refused(kept: Path, weights: Weights, tmp_path: Path) -> None:
    content = torch.load(kept, weights_only=True)
    changed = {**content, "state": {name: value + (name == "0.weight") for name, value in content["state"].items()}}
    cases: dict[str, Any] = {"changed": changed, "other facts": {**content, "accuracy": 1.0}, "another": {"a": 1}}
    for name, case in cases.items():
        torch.save(case, tmp_path / f"{name}.pt")
    (tmp_path / "cut.pt").write_bytes(kept.read_bytes()[:1000])
    (tmp_path / "text.pt").write_text("weights")
    for name in (*cases, "cut", "text"):
        with pytest.raises(ValueError, match="is damaged or has no weights of this program") as error:
            load_weights(tmp_path / f"{name}.pt")
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="There are no weights"):
        load_weights(tmp_path / "nothing.pt")
    renamed = tmp_path / f"resnet18-{'0' * 16}.pt"
    kept.rename(renamed)
    with pytest.raises(ValueError, match=f"must be called {weights.file_name}"):
        named_weights(str(renamed))


def test_encoders_start_from_them(kept: Path, weights: Weights) -> None:
    scratch, started = (ResNetEncoder(ResNetEncoder.Config(width=2, weights=name), [1, 2]) for name in ("", kept.name))
    for run in (0, 1):
        before, after = scratch.run_state(run), started.run_state(run)
        for name in before:
            expected = weights.state[name.removeprefix("0.")] if name.startswith("0.") else before[name]
            torch.testing.assert_close(after[name], expected, rtol=0, atol=0)


def test_encoders_refuse_others(kept: Path, weights: Weights) -> None:
    with pytest.raises(ValueError, match=r"`encoder.width=4` needs weights of a resnet18_pooled of that width"):
        ResNetEncoder(ResNetEncoder.Config(width=4, weights=kept.name), [1])
    with pytest.raises(ValueError, match=r"with sixteen digits at its end, but got 'mine\.pt'"):
        ResNetEncoder.Config(weights="mine.pt")
    with pytest.raises(ValueError, match="There are no weights"):
        ResNetEncoder(ResNetEncoder.Config(weights=f"gone-{'0' * 16}.pt"), [1])
    strange = replace(weights, state={"0.weight": torch.zeros(1)})
    with pytest.raises(ValueError, match="do not fit the encoder's network"):
        ResNetEncoder(ResNetEncoder.Config(width=2, weights=keep_weights(strange, kept.parent).name), [1])


def images(**values: Any) -> RunConfig:
    paths = {name.replace("__", "."): value for name, value in values.items()}
    base = {"task.data": "embedded", "encoder.width": 2, "task.n_eval": 20}
    return RunConfig.of({**base, **paths}, task="images", scale="smoke")


def test_a_checkpoint_needs_its_first_weights_no_more(kept: Path, tmp_path: Path) -> None:
    run = Run(images(encoder__weights=kept.name), seeds=(1,))
    next(iter(run)) and run.save(tmp_path / "run.pt")
    kept.unlink()
    again = Run.restore(tmp_path / "run.pt")
    assert again.config == run.config
    for name, value in run.step.encoder.run_state(0).items():
        assert torch.equal(again.step.encoder.run_state(0)[name], value)


def test_adamw_is_adam_with_decay() -> None:
    """From the same start and gradients, a first step differs by lr 0.01 times the weights, and by nothing else."""
    lr = 1e-3
    adam, adamw = (Run(images(training__optimizer=kind, training__lr=lr), seeds=(1,)) for kind in ("adam", "adamw"))
    start = {name: p.detach().clone() for name, p in adam.step.encoder.named_parameters()}
    for run in (adam, adamw):
        run.stepper.advance(1, lr)
    theirs = dict(adamw.step.encoder.named_parameters())
    for name, ours in adam.step.encoder.named_parameters():
        torch.testing.assert_close(theirs[name], ours - lr * 0.01 * start[name], rtol=1e-5, atol=1e-7)
    assert images().flat()["training.optimizer"] == "adam"
    assert RunConfig.of(task="images", profile="reference").flat()["training.optimizer"] == "adam"


@pytest.mark.gpu
def test_captured_pretraining_is_the_plain_one(data: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = Pretraining(data, RECIPE, "cuda")
    monkeypatch.setattr(Pretraining, "_capture", lambda _: None)
    plain = Pretraining(data, RECIPE, "cuda")
    chosen = torch.arange(RECIPE.batch_size, device="cuda")
    for _ in range(3):
        torch.testing.assert_close(fast.step(chosen), plain.step(chosen), rtol=0.02, atol=0.02)
    for (name, ours), theirs in zip(fast.net.state_dict().items(), plain.net.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.01, msg=name)
