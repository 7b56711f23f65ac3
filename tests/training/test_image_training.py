"""Training on images: which evaluation a run ends with, what phases train, what precision moves."""

import math
from pathlib import Path

import pytest
import torch

from pcl.config.fidelity import SETTINGS
from pcl.config.run_config import RunConfig
from pcl.config.schedule import Trained
from pcl.encoders import Head, Precision, ResNetEncoder
from pcl.tasks import Negatives
from pcl.tasks.labelled import encoded
from pcl.training.run import Run
from tests.support.smoke import smoke_images


@pytest.fixture(scope="module")
def finished() -> tuple[Run, list[dict[str, float]]]:
    run = Run(smoke_images(training__n_batches=6, training__lr=1e-3), seeds=(1, 2))
    return run, [report.by_seed[1] for report in run]


def test_a_run_ends_with_its_best_evaluation(finished: tuple[Run, list[dict[str, float]]]) -> None:
    _, (*before, last) = finished
    key = "val/crop_rank_corr"
    assert last[key] >= max(metrics[key] for metrics in before)
    assert all("test/crop_rank_corr" not in metrics for metrics in before)
    earlier = dict(zip((2.0, 4.0), before, strict=True))
    if last["best/batch"] in earlier:
        best = earlier[last["best/batch"]]
        assert {k: v for k, v in last.items() if k.startswith("val/")} == {
            k: v for k, v in best.items() if k.startswith("val/")
        }
    else:
        assert last["best/batch"] == 6
        assert last[key] > max(metrics[key] for metrics in before)
    assert {"test/crop_rank_corr", "test/entropy_rank_corr", "test/recall_at_1"} <= set(last)


def test_the_weights_of_the_last_batch_are_judged_too(finished: tuple[Run, list[dict[str, float]]]) -> None:
    run, (*before, last) = finished
    assert not any(name.startswith("last/") for metrics in before for name in metrics)
    of_last, _ = run.step.task.final(run.step.encoder)  # which keeps the last weights
    for what in ("crop_rank_corr", "entropy_rank_corr", "recall_at_1"):
        assert last[f"last/{what}"] == of_last[f"test/{what}"]


def test_the_area_by_rejection_is_that_of_a_loop(finished: tuple[Run, list[dict[str, float]]]) -> None:
    run, (*_, last) = finished
    judged = run.step.task.folds[0].test  # type: ignore[attr-defined]
    ((mu, kappa), *_) = encoded(run.step.encoder, [judged.images, judged.images])
    cosines = (mu @ mu.T).fill_diagonal_(-2)
    hits = (judged.labels == judged.labels[cosines.argmax(1)]).double()[kappa.argsort(descending=True)]
    shares = [hits[:kept].mean() for kept in range(1, len(hits) + 1)]
    assert last["last/rejection_area"] == pytest.approx(float(sum(shares) / len(shares)), rel=1e-9)
    assert "val/rejection_area" not in last


def test_a_run_that_keeps_its_last_evaluation_ends_with_it(finished: tuple[Run, list[dict[str, float]]]) -> None:
    best, _ = finished
    run = Run(best.config.with_values({"training.keep": "last"}), seeds=best.seeds)
    *before, last = [report.by_seed[1] for report in run]
    (judged,) = run.step.task.evaluate(run.step.encoder)[:1]
    assert last["best/batch"] == 6
    assert all(last[name] == value for name, value in judged.items())
    assert all(last[f"test/{what}"] == last[f"last/{what}"] for what in ("crop_rank_corr", "recall_at_1"))
    assert max(metrics["val/crop_rank_corr"] for metrics in before) != last["val/crop_rank_corr"]


def test_a_last_kappa_that_orders_nothing_is_kept_as_undefined() -> None:
    run = Run(smoke_images(training__n_batches=6, training__keep="last"), seeds=(1,))
    judged = run.step.task.evaluate(run.step.encoder)
    run.batch = 6
    (last,) = run._selected([{**judged[0], "val/crop_rank_corr": math.nan}])
    assert math.isnan(last["val/crop_rank_corr"])
    assert last["best/batch"] == 6


def test_resumed_to_the_bit(tmp_path: Path, finished: tuple[Run, list[dict[str, float]]]) -> None:
    run, reports = finished
    again = Run(run.config, run.seeds)
    for report in again:
        if report.batch == 4:
            again.save(tmp_path / "half.pt")
            break
    *_, last = Run.restore(tmp_path / "half.pt")
    timeless = {k: v for k, v in last.by_seed[1].items() if not k.startswith("time/")}
    assert timeless == {k: v for k, v in reports[-1].items() if not k.startswith("time/")}


@pytest.mark.parametrize("loss", ["hib", "elk", "info_nce"])
def test_other_losses_train(loss: str) -> None:
    phases = "mu" if loss == "info_nce" else "joint"
    run = Run(smoke_images(loss=loss, training__phases=phases), seeds=(1,))
    before = run.step.encoder.run_state(0)
    *_, last = run
    after = run.step.encoder.run_state(0)
    assert math.isfinite(last.metrics["train/loss"])
    # Every trained weight has moved, those of the last layer too.
    assert all(not torch.equal(before[name], after[name]) for name in before if name.endswith("weight"))


def gradients(config: RunConfig, trained: Trained) -> tuple[bool, bool]:
    """A phase's gradient reaches what it trains, mu or kappa."""
    run = Run(config, seeds=(1,))
    run.stepper.enter(trained, Negatives.DRAWN)
    posterior = run.step.encode(*run.step.prepare())
    return posterior.mu.requires_grad, posterior.kappa.requires_grad


def test_a_cpu_computes_in_float32_whatever_the_precision() -> None:
    encoders = [ResNetEncoder(ResNetEncoder.Config(width=2, precision=precision), [1]) for precision in Precision]
    x = torch.randint(256, (1, 4, 3, 32, 32), dtype=torch.uint8)
    first, second = (encoder(x) for encoder in encoders)
    assert torch.equal(first.mu, second.mu)
    assert torch.equal(first.kappa, second.kappa)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", [precision.value for precision in Precision])
@pytest.mark.parametrize(("loss", "phases"), [("mc_info_nce", "mu kappa"), ("hib", "joint"), ("elk", "joint")])
def test_graph_trains_images_like_the_plain_path(loss: str, phases: str, precision: str) -> None:
    values = {
        "task.data": "embedded", "encoder.precision": precision, "encoder.width": 16, "training.phases": phases,
        "training.n_batches": 80, "training.eval_every": 40, "training.batch_size": 32, "training.lr": 1e-3,
        "task.n_eval": 500,
    }  # fmt: skip
    config = RunConfig.of(values, loss=loss, profile="paper", scale="smoke", task="images")
    seeds = range(6)
    fast, plain = (list(Run(config, seeds, "cuda", is_fast=is_fast)) for is_fast in (True, False))
    for a, b in zip(fast, plain, strict=True):
        for key in ("train/loss", "val/recall_at_1"):
            ours, theirs = (torch.tensor([report.by_seed[seed][key] for seed in seeds]) for report in (a, b))
            error = ((ours.var() + theirs.var()) / len(seeds)).sqrt()
            assert abs(ours.mean() - theirs.mean()) < 4 * error + 0.01, key


@pytest.mark.gpu
def test_bfloat16_moves_posteriors_by_little() -> None:
    encoders = [ResNetEncoder(ResNetEncoder.Config(precision=precision), [1]).cuda().eval() for precision in Precision]
    x = torch.randint(256, (1, 64, 3, 32, 32), dtype=torch.uint8, device="cuda")
    half, single = (encoder(x) for encoder in encoders)
    assert (half.mu * single.mu).sum(-1).min() > 0.999
    torch.testing.assert_close(half.kappa, single.kappa, rtol=0.03, atol=0)
    assert not torch.equal(half.kappa, single.kappa)


def test_what_phases_train() -> None:
    assert gradients(smoke_images("paper"), Trained.MU) == (True, False)
    assert gradients(smoke_images("paper"), Trained.KAPPA) == (False, True)
    assert gradients(smoke_images("reference"), Trained.KAPPA) == (True, True)
    assert gradients(smoke_images("paper"), Trained.JOINT) == (True, True)


def test_every_setting_of_images_changes_what_it_names() -> None:
    """Check the head and the pool; test_cifar has negatives and folds, test_config the schedule, others here phases."""
    assert {s.path for s in SETTINGS if s.task == "images"} == {
        "task.negative_weights", "task.negative_pool", "encoder.head", "encoder.kappa_phase",
        "training.lr_schedule", "task.folds", "task.crops",
    }  # fmt: skip
    linear, normed = (ResNetEncoder(ResNetEncoder.Config(width=2, head=head), [1]) for head in Head)
    x = torch.rand(1, 4, 3, 32, 32)
    linear.nets[0][1].bias.data.zero_()  # type: ignore[index, union-attr]
    torch.testing.assert_close(linear(x).mu, normed(x).mu)  # the same first weights, without the bias
    assert sum("bias" in name for name, _ in normed.nets[0][1].named_parameters()) == 0  # type: ignore[index]
    assert [smoke_images(profile).flat()["task.negative_pool"] for profile in ("paper", "reference")] == [
        "all",
        "modulo_256",
    ]
