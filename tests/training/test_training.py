"""Run: resumed runs are the same to the bit, phases train what they name, failures are named, settings act alone."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pcl import Diverged
from pcl.config.run_config import RunConfig
from pcl.encoders import MlpEncoder
from pcl.training.checkpoint import Saving, check_same_config, read_checkpoint, write_checkpoint
from pcl.training.run import Report, Run
from pcl.training.steps.training_step import TrainingStep
from tests.support.smoke import FAST, smoke


def last(run: Run) -> Report:
    *_, report = run
    return report


@pytest.mark.parametrize(
    "config",
    [
        smoke(),
        smoke("reference"),
        smoke("exact"),
        smoke(training__phases="mu kappa mu", training__n_batches=6, training__eval_every=1),
        smoke(loss__learn_kappa_pos=True),
        smoke(loss="hib", training__phases="joint"),
        smoke("reference", loss="elk"),
        smoke("reference", encoder__backbone="shared", task__backbone="shared", task__dim_x=4, training__eval_every=3),
    ],
    ids=["paper", "reference", "exact", "alternating", "learned kappa_pos", "hib joint", "elk", "shared"],
)
def test_a_resumed_run_is_the_same_to_the_bit(config: RunConfig, tmp_path: Path) -> None:
    seeds = (4, 5)
    whole, reports = Run(config, seeds), list[Report]()
    for report in whole:
        reports.append(report)
        whole.save(tmp_path / f"{len(reports)}.pt")
    for stop in range(1, len(reports)):
        second = Run.restore(tmp_path / f"{stop}.pt")
        resumed = list(second)
        assert [r.batch for r in resumed] == [r.batch for r in reports[stop:]]
        for ours, theirs in zip(resumed, reports[stop:], strict=True):
            for seed in seeds:
                timeless = {k: v for k, v in ours.by_seed[seed].items() if not k.startswith("time/")}
                assert timeless == {k: theirs.by_seed[seed][k] for k in timeless}
        for a, b in zip(second.step.encoder.parameters(), whole.step.encoder.parameters(), strict=True):
            assert torch.equal(a, b)


def test_a_phase_is_entered_with_the_restored_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast path copies frozen weights on entering a phase: on resuming, they must be there by then."""
    run = Run(smoke(), (4,))
    last(run)
    run.save(tmp_path / "run.pt")
    seen = []
    enter = TrainingStep.enter

    def noting(step: TrainingStep, *phase: Any) -> list[torch.nn.Parameter]:
        seen.append([parameter.detach().clone() for parameter in step.encoder.parameters()])
        return enter(step, *phase)

    monkeypatch.setattr(TrainingStep, "enter", noting)
    Run.restore(tmp_path / "run.pt")
    assert len(seen) == 1
    for parameter, entered in zip(run.step.encoder.parameters(), seen[0], strict=True):
        assert torch.equal(parameter, entered)


def test_a_run_is_a_function_of_its_seed() -> None:
    metrics = (last(Run(smoke(), (seed,))).by_seed[seed] for seed in (4, 4, 5))
    first, again, other = ({k: v for k, v in one.items() if not k.startswith("time/")} for one in metrics)
    assert first == again != other


def test_infonce_has_no_errors_of_a_kappa_that_nothing_trains() -> None:
    metrics = last(Run(smoke(loss="info_nce"), (4,))).by_seed[4]
    assert {name for name in metrics if name.startswith(("eval/kappa", "eval/spread", "eval/cover"))} == {
        "eval/kappa_mean", "eval/kappa_median",
    }  # fmt: skip
    assert "eval/kappa_rank_corr" in last(Run(smoke(), (4,))).by_seed[4]


def test_seeds_may_be_numpys() -> None:
    ours, theirs = Run(smoke(), (4, 5)), Run(smoke(), list(np.arange(4, 6)))
    assert (theirs.seeds, {type(seed) for seed in theirs.seeds}) == ((4, 5), {int})
    assert ours.step.seed_and_step.equal(theirs.step.seed_and_step)


def test_seeds_side_by_side_start_as_they_would_alone() -> None:
    together, alone = Run(smoke(), (4, 5)), Run(smoke(), (5,))
    for a, b in zip(together.step.encoder.state_dict().values(), alone.step.encoder.state_dict().values(), strict=True):
        torch.testing.assert_close(a[1], b[0])
    report = last(together)
    assert set(report.by_seed) == {4, 5}
    first, second = (report.by_seed[seed]["eval/kappa_mae"] for seed in (4, 5))
    assert first != second
    assert report.metrics["eval/kappa_mae"] == pytest.approx((first + second) / 2)


def test_a_seed_does_not_feel_the_others() -> None:
    """The gradient of one run's loss in another run's weights is zero."""
    run = Run(smoke("reference"), (4, 5, 6))
    run._enter_phase()
    losses = run.step.mean_losses(run.step.prepare())
    gradients = torch.autograd.grad(losses[1], list(run.step.encoder.mu_parameters()))
    assert all(g[0].abs().max() == g[2].abs().max() == 0 for g in gradients)
    assert any(g[1].abs().max() > 0 for g in gradients)


@pytest.mark.parametrize(("phase", "moves"), [("mu", (True, False)), ("kappa", (False, True)), ("joint", (True, True))])
@pytest.mark.parametrize("profile", ["paper", "reference", "exact"])
def test_a_phase_trains_what_it_names(phase: str, moves: tuple[bool, bool], profile: str) -> None:
    run = Run(smoke(profile, training__phases=phase), (4,))
    before = {name: value.clone() for name, value in run.step.encoder.state_dict().items()}
    last(run)
    after = run.step.encoder.state_dict()
    for part, is_moving in zip(("mu_net", "kappa_net"), moves, strict=True):
        changed = [not torch.equal(before[name], after[name]) for name in before if name.startswith(part)]
        assert all(changed) if is_moving else not any(changed)
    assert torch.equal(before["kappa_head.scale"], after["kappa_head.scale"])


@pytest.mark.parametrize(("profile", "loss"), [("paper", "mc_info_nce"), ("paper", "elk"), ("reference", "elk")])
def test_kappa_pos_is_learned_by_each_seed(profile: str, loss: str) -> None:
    run = Run(smoke(profile, loss, loss__learn_kappa_pos=True, training__lr=0.01), (4, 5))
    report = last(run)
    first, second = (module.kappa_pos().item() for module in run.step.losses)  # type: ignore[operator, union-attr]
    assert first != second != 20.0
    assert [report.by_seed[seed]["learned/kappa_pos"] for seed in (4, 5)] == [first, second]


def test_what_is_learned_beside_the_encoder_is_reported() -> None:
    fixed = last(Run(smoke("paper"), (4,))).by_seed[4]
    assert not any(name.startswith("learned/") for name in fixed)
    hib = last(Run(smoke("reference", "hib", loss__learn_a=True, training__lr=0.01), (4,))).by_seed[4]
    assert {name for name in hib if name.startswith("learned/")} == {"learned/a", "learned/b"}


def test_runaway_kappa_ends_the_run_with_its_cause() -> None:
    run, reports = Run(smoke(training__kappa_limit=10.0), (4, 5)), list[Report]()
    with pytest.raises(Diverged, match=r"seed 4: runaway kappa: its median .* at batch 4; seed 5"):
        reports.extend(run)
    assert len(reports) == 0 or reports[-1].batch == 4


@pytest.mark.parametrize("loss", ["hib", "mc_info_nce"])
def test_without_a_limit_a_run_trains_to_its_end_whatever_its_kappa(loss: str) -> None:
    """As HIB's published one did: kappa is reported as it is, beyond what float32 tells from a point."""
    run = Run(smoke("reference", loss=loss, training__phases="joint", training__negatives="in_batch"), (4, 5))
    assert isinstance(run.step.encoder, MlpEncoder)
    run.step.encoder.kappa_head.shift += math.log(1e14)
    report = last(run)
    assert (report.batch, report.failures) == (8, {})
    for metrics in report.by_seed.values():
        assert metrics["eval/kappa_median"] > 1e13
        undefined = {name for name, value in metrics.items() if not math.isfinite(value)}
        # float32 has one spread for all of them
        assert undefined <= {"eval/spread_rank_corr", "eval/spread100_rank_corr"}


def test_nan_ends_the_run_with_its_cause() -> None:
    run = Run(smoke(), (4,))
    with torch.no_grad():
        next(iter(run.step.encoder.mu_parameters())).fill_(torch.nan)
    with pytest.raises(Diverged, match="NaN"):
        list(run)


def test_one_failed_seed_leaves_the_others(tmp_path: Path) -> None:
    run = Run(smoke(), (4, 5))
    with torch.no_grad():
        next(iter(run.step.encoder.mu_parameters()))[0].fill_(torch.nan)
    report = last(run)
    assert list(report.failures) == [4]
    assert report.metrics["eval/kappa_mae"] == report.by_seed[5]["eval/kappa_mae"]
    assert report.batch == 8
    run.save(tmp_path / "run.pt")
    assert Run.restore(tmp_path / "run.pt").failures == run.failures


def test_a_checkpoint_of_another_device_goes_on_with_fresh_numbers(tmp_path: Path) -> None:
    run = Run(smoke(), (4,))
    next(iter(run))
    run.save(tmp_path / "run.pt")
    content = read_checkpoint(tmp_path / "run.pt")
    content["stepper"] |= {"kind": "GraphStepper on cuda", "generator": torch.zeros(16, dtype=torch.uint8)}
    content["stepper"]["optimizer"]["param_groups"][0] |= {"capturable": True, "foreach": True, "fused": None}
    write_checkpoint(tmp_path / "run.pt", content)
    other = Run.restore(tmp_path / "run.pt")
    assert last(other).batch == 8
    assert other.stepper.optimizer.param_groups[0]["capturable"] is False


def test_checkpoints_of_others_are_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    Run(smoke(), (4,)).save(path)
    before, content = path.read_bytes(), read_checkpoint(path)
    with pytest.raises(ValueError, match=r"loss.n_samples is 4 there and 5 here"):
        check_same_config(path, content, smoke(loss__n_samples=5), (4,))
    with pytest.raises(ValueError, match=r"has the seeds \[4\], not \[5\]"):
        check_same_config(path, content, smoke(), (5,))
    check_same_config(path, content, smoke(), (4,))
    assert path.read_bytes() == before
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        Run.restore(path)
    assert path.read_bytes() == b"not a checkpoint"
    with pytest.raises(ValueError, match="There is no checkpoint"):
        Run.restore(tmp_path / "none.pt")


@pytest.mark.parametrize("seeds", [(), (4, 4), (-1,)])
def test_seeds_are_checked(seeds: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="Seeds must be different"):
        Run(smoke(), seeds)


def test_chunks_are_checked() -> None:
    with pytest.raises(ValueError, match="`chunk_size >= 1` must hold"):
        Run(smoke("paper"), (4,), chunk_size=0)


def test_infinite_truth_reports_the_level_of_kappa() -> None:
    report = last(Run(smoke(task__family="dirac"), (4,)))
    assert "eval/kappa_mae" not in report.metrics
    assert report.metrics["eval/kappa_mean"] > 0
    assert report.metrics["eval/mu_rank_corr"] <= 1


def test_training_recovers_the_truth_on_a_cpu() -> None:
    """As `launch/train.py --scale quick` does, in four dimensions and a fifth of its time: modes, and then kappa."""
    values = {**FAST, "task.smoothing": "none", "task.largest_cosine": 0.5, "task.n_eval": 300, "training.lr": 3e-3}
    config = RunConfig.of(
        {**values, "training.n_batches": 240, "training.eval_every": 120}, profile="reference", scale="quick"
    )
    of_modes, of_both = Run(config, seeds=(4,))
    assert of_both.metrics["eval/mu_rank_corr"] > 0.9
    assert of_both.metrics["eval/kappa_rank_corr"] > max(0.3, of_modes.metrics["eval/kappa_rank_corr"])


def test_checkpoints_are_not_written_too_soon_but_after_the_last_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(smoke(), (4,))
    clock = iter([0.0, 1.0, 3.0, 40.0, 44.0, 46.0, 47.0, 48.0])  # made; then begun and, where written, ended
    monkeypatch.setattr("pcl.training.checkpoint.time.perf_counter", lambda: next(clock))
    saving = Saving(run, tmp_path / "run.pt")
    run.batch = 1
    assert saving.save()  # took 2 seconds
    assert not saving.save()  # 37 seconds later: 40 are to pass
    assert saving.save()  # 41 seconds later
    run.batch = run.config.training.n_batches
    (tmp_path / "run.pt").unlink()
    assert saving.save()
    assert (tmp_path / "run.pt").exists()
