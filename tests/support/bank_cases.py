"""The bank of inputs in a fused step; `kernel_cases` runs these."""

import gc
import weakref

import torch

from pcl.config.run_config import RunConfig
from pcl.config.schedule import Trained
from pcl.tasks import Negatives
from pcl.training.steps.fused_step import FusedStep

_WITHOUT = [
    (Trained.KAPPA, Negatives.IN_BATCH), (Trained.KAPPA, Negatives.SHARED), (Trained.MU, Negatives.IN_BATCH),
    (Trained.MU, Negatives.DRAWN), (Trained.JOINT, Negatives.DRAWN),
]  # fmt: skip


def check_bank_of_a_step(device: str) -> None:
    """Batches of kappa's phase with drawn negatives come from a bank, which each of them renews; no others do."""
    step = _step(device)
    for trained, source in _WITHOUT:
        step.enter(trained, source)
        assert step._bank is None
    step.enter(Trained.KAPPA, Negatives.DRAWN)
    bank = step._bank
    assert bank is not None
    assert bank.n_slots > 2 * bank.n_new
    everything = torch.arange(2 * bank.n_slots, device=device).view(2, -1, 1)
    for batch in range(3):
        before, _ = bank.inputs_and_modes(everything)
        x, modes = step.prepare()
        after, _ = bank.inputs_and_modes(everything)
        is_new = (before != after).any(-1)
        assert is_new[:, batch * bank.n_new : (batch + 1) * bank.n_new].all()
        assert is_new.sum() == 2 * bank.n_new
        for run in range(2):
            rows = {tuple(row) for row in after[run].tolist()}
            assert all(tuple(row) in rows for row in x[run].tolist())
        torch.testing.assert_close(modes, step.encoder.mu(x), rtol=0, atol=5e-3)
        step.seed_and_step[1] += 1


def check_a_step_is_freed_at_once(device: str) -> None:
    """A step is not part of a cycle, which would keep a GPU's memory until Python looks for cycles."""
    step = _step(device)
    step.enter(Trained.KAPPA, Negatives.DRAWN)
    gone = weakref.ref(step)
    gc.disable()
    try:
        del step
        assert gone() is None
    finally:
        gc.enable()


def _step(device: str) -> FusedStep:
    values = {"task.largest_cosine": 0.9, "task.smoothing": "none"}
    config = RunConfig.of(values, profile="reference", scale="smoke")
    task, encoder = config.task.build([4, 5]), config.encoder.build_for(config.task.inputs, [4, 5])
    return FusedStep(config, task, encoder, torch.device(device), seed=1)
