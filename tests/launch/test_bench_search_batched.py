"""Configurations trained side by side: each is trained as it would be alone, at its own rate and kappa_pos."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from launch.benchmarks import search_table
from launch.benchmarks.search_batched import KappaPosOfRuns, RunwiseAdam, shape_of, step_of, train
from pcl.config.run_config import Plain, RunConfig
from pcl.config.schedule import Trained
from pcl.studies.space.search_space import Cell
from pcl.tasks import Negatives, ToyTask
from pcl.training.assembly import assembled
from pcl.training.step import TrainingStep

ALL_CELLS = search_table.cells
CPU = torch.device("cpu")
DRAWN_AT_ONCE = {"task.smoothing": "none", "task.largest_cosine": 1.0}


def config_of(**values: object) -> RunConfig:
    paths = {name.replace("__", "."): value for name, value in values.items()}
    return RunConfig.of({**DRAWN_AT_ONCE, **paths}, profile="reference", scale="smoke")


def losses_of(step: TrainingStep) -> torch.Tensor:
    step.enter(Trained.JOINT, Negatives.DRAWN)
    step.generator.manual_seed(5)
    return step.mean_losses(step.prepare())


def test_runs_have_the_truths_weights_and_losses_that_they_have_alone() -> None:
    config, seeds = config_of(loss__kappa_pos=12.0), (1, 2)
    alone = TrainingStep(config, *assembled(config, seeds), CPU, 0)
    both = step_of([config, config], seeds, CPU)
    assert isinstance(alone.task, ToyTask)
    for tensor, other in ((alone.task.kappa_true, both.task.kappa_true), (alone.task.x_eval, both.task.x_eval)):
        assert torch.equal(torch.cat([tensor, tensor]), other)
    for parameter, other in zip(alone.encoder.parameters(), both.encoder.parameters(), strict=True):
        assert torch.equal(torch.cat([parameter, parameter]), other)
    one = step_of([config], seeds, CPU)
    assert torch.allclose(losses_of(alone), losses_of(one), atol=1e-6)


def test_kappa_pos_is_each_run_s_own_and_learned_only_where_it_is_to_be() -> None:
    seeds = (1,)
    pair = [config_of(loss__kappa_pos=5.0), config_of(loss__kappa_pos=40.0, loss__learn_kappa_pos=True)]
    other = [pair[0], config_of(loss__kappa_pos=80.0)]
    step = step_of(pair, seeds, CPU)
    losses = losses_of(step)
    changed = losses_of(step_of(other, seeds, CPU))
    # The seed of training is of the shape, which both groups share.
    assert losses[0] == changed[0]
    assert losses[1] != changed[1]
    losses.sum().backward()
    (kappa_pos,) = step.losses
    assert isinstance(kappa_pos, KappaPosOfRuns)
    gradient = kappa_pos.log_factor.grad
    assert gradient is not None
    assert gradient[0] == 0
    assert gradient[1] != 0


@pytest.mark.parametrize("lr", [0.5, torch.tensor(0.5)])
def test_every_run_s_adam_is_that_of_torch_at_its_own_rate(lr: float | torch.Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(2, 3, 4, generator=generator)
    rates = torch.tensor([1e-2, 1e-1])
    ours = nn.Parameter(start.clone())
    theirs = [nn.Parameter(start[run].clone()) for run in range(2)]
    optimizer = RunwiseAdam([ours], rates, lr)
    others = [torch.optim.Adam([theirs[run]], lr=0.5 * float(rates[run])) for run in range(2)]
    for _ in range(20):
        gradient = torch.randn(2, 3, 4, generator=generator)
        ours.grad = gradient
        optimizer.step()
        for run, other in enumerate(others):
            theirs[run].grad = gradient[run]
            other.step()
    assert torch.allclose(ours, torch.stack(list(theirs)), atol=1e-5)


def test_configurations_of_different_shapes_are_told_apart() -> None:
    base = config_of()
    assert shape_of(base) == shape_of(config_of(training__lr=1.0, loss__kappa_pos=3.0, loss__learn_kappa_pos=True))
    for other in (config_of(training__n_negatives=5), config_of(training__phases="joint")):
        assert shape_of(base) != shape_of(other)


def test_training_reports_every_run_and_a_rate_of_nothing_changes_nothing() -> None:
    configs = [config_of(training__lr=1e-30), config_of(training__lr=1e-2)]
    moments = list(train(configs, (1, 2), CPU))
    assert [moment.batch for moment in moments] == [4, 8]
    first, last = (moment.kappa_rank_corr for moment in moments)
    assert first[0] == last[0]
    assert first[1] != last[1]
    assert moments[-1].has_failed == [[False, False], [False, False]]


def test_a_run_whose_kappa_is_out_of_bounds_is_told_to_have_failed() -> None:
    config = config_of(training__kappa_limit=1e-3)
    assert all(moment.has_failed == [[True]] for moment in train([config], (1,), CPU))


@pytest.mark.gpu
def test_a_captured_step_trains_as_the_plain_one_does() -> None:
    config = config_of(training__lr=1e-3, training__n_batches=400, training__eval_every=400)
    last = {device: list(train([config], (1, 2), torch.device(device)))[-1] for device in ("cpu", "cuda")}
    for on_cpu, on_gpu in zip(last["cpu"].kappa_rank_corr[0], last["cuda"].kappa_rank_corr[0], strict=True):
        assert on_gpu == pytest.approx(on_cpu, abs=0.2)


def few_cells(n_batches: int, overrides: Mapping[str, Plain]) -> list[Cell]:
    """Two shapes of two cells, drawn at once and small."""
    chosen = [c for c in ALL_CELLS(n_batches, overrides) if c.varied["loss.kappa_pos"] == 5.0]
    chosen = [c for c in chosen if c.varied["M"] == "0" and c.varied["training.lr"] in (1e-4, 1e-2)]
    small = {**DRAWN_AT_ONCE, "training.batch_size": 8, "loss.n_samples": 2, "task.n_eval": 32}
    return [replace(cell, config=cell.config.with_values(small)) for cell in chosen]


def test_the_table_is_made_shape_by_shape_goes_on_and_is_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(search_table, "cells", few_cells)
    path = tmp_path / "table.jsonl"
    assert search_table.make(path, 16, "cpu", limit_s=0.0) == []
    assert "the limit of 0 s is near" in capsys.readouterr().out
    rows = search_table.make(path, 16, "cpu", limit_s=1000.0)
    assert len(rows) == 8
    assert all(row["batches"] == list(range(1, 17)) for row in rows)
    assert all(search_table.final(row) is not None for row in rows)
    assert search_table.read(path)[1] == rows
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-1]) + "\n")
    again = search_table.make(path, 16, "cpu", limit_s=1000.0)
    assert [row["cell"] for row in again] == [rows[-1]["cell"]]
    with pytest.raises(ValueError, match="other settings"):
        search_table.make(path, 32, "cpu", limit_s=1000.0)
    with pytest.raises(ValueError, match="other settings"):
        search_table.make(path, 16, "cpu", limit_s=1000.0, overrides={"task.n_eval": 9})
    with pytest.raises(ValueError, match="n_evals"):
        search_table.make(tmp_path / "none", 16, "cpu", limit_s=1000.0, overrides={"task.n_evals": 9})
    assert not (tmp_path / "none").exists()


def test_the_wide_grid_has_a_few_hundred_cells_of_six_shapes() -> None:
    cells = search_table.cells(4000, {})
    assert len(cells) == 300
    assert len({shape_of(cell.config) for cell in cells}) == 6
