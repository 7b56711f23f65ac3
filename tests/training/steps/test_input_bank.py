"""Inputs that are encoded once and drawn many times."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pcl.config.run_config import RunConfig
from pcl.tasks import Negatives
from pcl.tasks.toy import ToyTask
from pcl.training.steps import input_bank
from pcl.training.steps.input_bank import InputBank, n_slots_of

SEEDS = (4, 5)
N_SLOTS = 4096


def _task(**values: object) -> ToyTask:
    settings = {"task.largest_cosine": 0.9, "task.smoothing": "none", **values}
    task = RunConfig.of(settings, profile="reference", scale="smoke").task.build(SEEDS)
    assert isinstance(task, ToyTask)
    return task


def _encode(x: Tensor) -> Tensor:
    return normalize(x[..., :3] - 0.5, dim=-1)


def _bank(task: ToyTask, n_used: int = 512, n_slots: int = N_SLOTS) -> tuple[InputBank, torch.Generator]:
    generator = torch.Generator().manual_seed(0)
    return InputBank(task.pairs, _encode, n_used, n_slots, generator), generator


def _all_inputs(bank: InputBank) -> Tensor:
    """Inputs of both runs in the order of their slots."""
    x, _ = bank.inputs_and_modes(torch.arange(2 * bank.n_slots).view(2, -1, 1))
    return x


def test_inputs_keep_their_modes_and_truths() -> None:
    """Indices of a run are of its own inputs, also after some were replaced."""
    task = _task()
    bank, generator = _bank(task)
    for step in range(3):
        indices = bank.draw_inputs(1000, generator)
        x, modes = bank.inputs_and_modes(indices)
        assert x.shape == (2, 1000, task.config.dim_x)
        assert torch.equal(modes, _encode(x))
        for stored, true in zip(bank.parameters_of(indices), task.truth.parameters_of(x), strict=True):
            torch.testing.assert_close(stored, true)
        bank.renew(torch.tensor(step), generator)


def test_a_bank_is_filled_and_drawn_from_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """No input is in it twice, with blocks that do not divide its size; each is drawn equally often."""
    monkeypatch.setattr(input_bank, "_BLOCK", 1000)
    bank, generator = _bank(_task())
    x = _all_inputs(bank)
    assert x.shape[:2] == (2, N_SLOTS)
    assert len(x.flatten(0, 1).unique(dim=0)) == 2 * N_SLOTS
    n_drawn = 64 * N_SLOTS
    counts = bank.draw_inputs(n_drawn, generator).flatten().bincount(minlength=2 * N_SLOTS).double()
    assert len(counts) == 2 * N_SLOTS
    assert abs(counts.var() / 64 - 1) < 0.1, "as many different counts as of a Poisson law"
    assert (counts.view(2, 8, -1).mean(-1) / 64 - 1).abs().max() < 0.03


def test_a_batch_replaces_the_oldest_inputs() -> None:
    """It replaces a sixteenth of what it trains on; after as many batches as that takes, no input is left."""
    bank, generator = _bank(_task())
    assert bank.n_new == 32
    first = _all_inputs(bank)
    n_turns = N_SLOTS // bank.n_new
    for step in range(n_turns + 1):
        before = _all_inputs(bank)
        bank.renew(torch.tensor(step), generator)
        is_new = (before != _all_inputs(bank)).any(-1)
        turn = step % n_turns
        assert is_new[:, turn * bank.n_new : (turn + 1) * bank.n_new].all()
        assert is_new.sum() == 2 * bank.n_new
    assert (first != _all_inputs(bank)).any(-1).all()


@pytest.mark.parametrize(
    ("n_used", "n_slots", "sizes"),
    [(1, 10, (1, 10)), (1536, 4096, (96, 4032)), (17_408, 4096, (1088, 3264)), (10**6, 64, (62_500, 62_500))],
)
def test_a_bank_holds_a_whole_number_of_replacements(n_used: int, n_slots: int, sizes: tuple[int, int]) -> None:
    bank, _ = _bank(_task(), n_used, n_slots)
    assert (bank.n_new, bank.n_slots) == sizes


def test_size_of_a_bank() -> None:
    """At most a million inputs and a GiB, and fewer in short trainings."""
    assert n_slots_of(4 * 5 * 31, 100_000 * 17_408) == 2**20
    assert n_slots_of(4 * 5 * 193, 100_000 * 17_408) * 4 * 5 * 193 <= 2**30
    assert n_slots_of(4 * 31, 8 * 96) == 48
    assert n_slots_of(2**31, 1) == 1


@pytest.mark.parametrize("rule", ["uniform", "reject_positives"])
def test_batches_from_a_bank_have_the_law_of_new_inputs(rule: str) -> None:
    """Cosines of an anchor's true mode with its positive's and its negatives' agree in mean within four errors."""
    task = _task(**{"task.negatives": rule, "task.smoothing": "released"})
    bank, generator = _bank(task, n_used=8192)  # few batches use an input
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
