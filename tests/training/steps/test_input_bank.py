"""Inputs that are encoded once and drawn many times."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pcl.config.run_config import RunConfig
from pcl.tasks import Negatives
from pcl.tasks.toy import ToyTask
from pcl.training.steps.input_bank import InputBank

SEEDS = (4, 5)
N_PLACES = 4096


def _task(**values: object) -> ToyTask:
    settings = {"task.largest_cosine": 0.9, "task.smoothing": "none", **values}
    task = RunConfig.of(settings, profile="reference", scale="smoke").task.build(SEEDS)
    assert isinstance(task, ToyTask)
    return task


def _encode(x: Tensor) -> Tensor:
    return normalize(x[..., :3] - 0.5, dim=-1)


def _bank(task: ToyTask, n_drawn: int = 512) -> tuple[InputBank, torch.Generator]:
    generator = torch.Generator().manual_seed(0)
    return InputBank(task.pairs, _encode, n_drawn, generator, N_PLACES), generator


def test_what_a_bank_knows_of_its_inputs() -> None:
    """A bank keeps each run's own inputs with their modes and truth, also when it replaces them."""
    task = _task()
    bank, generator = _bank(task)
    for step in range(3):
        numbers = bank.draw_inputs(1000, generator)
        x, modes = bank.inputs_and_modes(numbers)
        assert x.shape == (2, 1000, task.config.dim_x)
        assert torch.equal(modes, _encode(x))
        for known, true in zip(bank.parameters_of(numbers), task.truth.parameters_of(x), strict=True):
            torch.testing.assert_close(known, true)
        bank.renew(torch.tensor(step), generator)


def test_a_batch_replaces_the_oldest_inputs() -> None:
    """It replaces a sixteenth of what it draws, so an input is drawn about sixteen times; in the end none is left."""
    bank, generator = _bank(_task())
    assert bank.n_new == 32
    everything = torch.arange(2 * N_PLACES).view(2, N_PLACES, 1)
    first, _ = bank.inputs_and_modes(everything)
    n_turns = N_PLACES // bank.n_new
    for step in range(n_turns + 1):
        before, _ = bank.inputs_and_modes(everything)
        bank.renew(torch.tensor(step), generator)
        after, _ = bank.inputs_and_modes(everything)
        is_new = (before != after).any(-1)
        turn = step % n_turns
        assert is_new[:, turn * bank.n_new : (turn + 1) * bank.n_new].all()
        assert is_new.sum() == 2 * bank.n_new
    assert (first != after).any(-1).all()


@pytest.mark.parametrize(("n_drawn", "n_new"), [(1, 1), (1536, 64), (17_408, 1024), (10**6, N_PLACES)])
def test_new_inputs_fill_the_bank_evenly(n_drawn: int, n_new: int) -> None:
    bank, _ = _bank(_task(), n_drawn)
    assert bank.n_new == n_new
    assert N_PLACES % n_new == 0


@pytest.mark.parametrize("rule", ["uniform", "reject_positives"])
def test_batches_from_a_bank_have_the_law_of_new_inputs(rule: str) -> None:
    """Cosines of an anchor's true mode with its positive's and its negatives' agree in mean within four errors."""
    task = _task(**{"task.negatives": rule, "task.smoothing": "released"})
    bank, generator = _bank(task, n_drawn=8192)  # few batches use an input
    means, errors = [], []
    for source in (None, bank):
        rows = []
        for step in range(60):
            bank.renew(torch.tensor(step), generator)
            batch = task.draw(64, Negatives.DRAWN, 4, generator, inputs=source)
            parts = (batch.anchor, batch.positive, batch.negatives.flatten(1, 2))
            anchor, positive, negatives = ((source or task.truth).parameters_of(part)[0] for part in parts)
            pull, push = (anchor * positive).sum(-1), (anchor.repeat_interleave(4, 1) * negatives).sum(-1)
            rows.append(torch.stack([pull.mean(1), push.mean(1), pull.var(1), push.var(1)]))
        table = torch.stack(rows).double()
        means.append(table.mean(0))
        errors.append(table.std(0) / len(rows) ** 0.5)
    assert means[0][0].min() > means[0][1].max() + 0.1, "positives are nearer than negatives"
    assert ((means[0] - means[1]) / torch.hypot(*errors)).abs().max() < 4
