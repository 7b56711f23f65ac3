"""The faster way to convolutions' gradients on ARM, against the usual one."""

import platform
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.backends import mkldnn
from torch.testing import assert_close

from pcl.config.run_config import RunConfig
from pcl.data import resolve
from pcl.encoders.resnet import backbone
from pcl.training.pretraining import Pretraining, Recipe
from pcl.training.run import Run
from pcl.training.steps.backward import fast_backward

CPU = torch.device("cpu")


def set_enabled(is_enabled: bool) -> bool:
    """And what it was before."""
    return bool(mkldnn.set_flags(_enabled=is_enabled, _fp32_precision=None)[0])


def is_enabled() -> bool:
    before = set_enabled(True)
    set_enabled(before)
    return before


def gradients(*, is_fast: bool) -> list[Tensor]:
    torch.manual_seed(1)
    net = backbone(8)
    loss = net(torch.randn(6, 3, 32, 32)).square().sum()  # in float32: others never come to oneDNN
    with fast_backward(CPU if is_fast else torch.device("meta")):
        loss.backward()
    return [parameter.grad for parameter in net.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("machine", ["aarch64", "arm64"])
def test_gradients_on_arm_are_the_usual_ones(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    usual, fast = gradients(is_fast=False), gradients(is_fast=True)
    assert len(fast) == len(usual) == 60
    for ours, theirs in zip(fast, usual, strict=True):
        assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * float(theirs.norm()))


@pytest.mark.parametrize(
    ("machine", "device", "is_off"),
    [("aarch64", "cpu", True), ("arm64", "cpu", True), ("x86_64", "cpu", False), ("aarch64", "cuda", False)],
)
def test_onednn_is_off_on_arm_and_only_within(
    machine: str, device: str, is_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert is_enabled()
    with fast_backward(torch.device(device)):
        assert is_enabled() is not is_off
    assert is_enabled()


def test_onednn_is_on_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(KeyError), fast_backward(CPU):
        raise KeyError
    assert is_enabled()


def test_onednn_that_was_off_stays_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    before = set_enabled(False)
    try:
        with fast_backward(CPU):
            pass
        assert not is_enabled()
    finally:
        set_enabled(before)


def seen_in_backward(network: nn.Module) -> list[bool]:
    """Whether oneDNN is on whenever the gradient of a network's first weights is known."""
    seen: list[bool] = []
    next(network.parameters()).register_hook(lambda _: seen.append(is_enabled()))
    return seen


def test_images_train_without_it_on_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    run = Run(RunConfig.of({"task.data": "embedded"}, scale="smoke", task="images"), (1,), "cpu")
    in_training = seen_in_backward(run.step.encoder)
    next(iter(run))
    pretraining = Pretraining(resolve("embedded", tmp_path), Recipe(width=2, epochs=1, batch_size=4, erased=0))
    in_pretraining = seen_in_backward(pretraining.net)
    pretraining.step(torch.arange(4))
    assert in_training
    assert in_pretraining == [False]
    assert not any(in_training)
    assert is_enabled()
