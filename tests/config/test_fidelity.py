"""Each fidelity setting changes what it names and nothing else."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

from pcl.config.fidelity import RELEASE, SETTINGS, Setting
from pcl.config.run_config import RunConfig
from pcl.distributions import VonMisesFisher
from pcl.tasks import Negatives
from pcl.tasks.truth import mu_nets
from pcl.training.run import Run
from tests.support.smoke import smoke


# What a step of a run consists of, from the data to the loss: a setting must change its own part and leave the others.
@cache  # most settings start from the same
def parts_of(config: RunConfig) -> dict[str, Any]:
    run = Run(config, (4,))
    training, step, task = config.training, run.step, run.step.task
    generator = torch.Generator()
    # The pool's size follows from the rule; here the same numbers are to be drawn for all rules.
    task.pairs.pool_size, task.pairs.n_tries = 512, 4
    with torch.no_grad():
        posterior = step.encoder(task.x_eval)
    modes, kappa = (
        torch.nn.functional.normalize(torch.ones(1, 8, 4), dim=-1),
        torch.full((1, 8), 20.0, requires_grad=True),
    )
    sample = VonMisesFisher(modes, kappa, law=step.encoder.law).rsample((64,), generator.manual_seed(1))
    (slope,) = torch.autograd.grad((sample * modes).sum(), kappa)
    batch = task.draw(512, Negatives.DRAWN, 4, generator.manual_seed(2))
    anchor, positive = (VonMisesFisher(posterior.mu[0, s], posterior.kappa[0, s]) for s in (slice(0, 8), slice(8, 16)))
    negatives = VonMisesFisher(posterior.mu[0, 16:48].view(8, 4, -1), posterior.kappa[0, 16:48].view(8, 4))
    loss = config.loss.build()(anchor, positive, negatives, generator=generator.manual_seed(3))
    return {
        "truth mu": task.mu_true,
        "truth kappa": task.kappa_true,
        "latents": task.truth.latents(modes, kappa.detach(), generator.manual_seed(4)),
        "encoder mu": posterior.mu,
        "encoder kappa weights": torch.cat([p.flatten() for p in step.encoder.kappa_parameters()]),
        "encoder kappa": posterior.kappa,
        "sample": sample.detach(),
        "sample gradient": slope,
        "anchors": batch.anchor,
        "positives": batch.positive,
        "drawn negatives": batch.negatives,
        "lr": [training.lr_at(b) for b in range(training.n_batches)],
        "sources": [training.negatives_at(p) for p in range(len(training.phases))],
        "count": training.n_negatives,
        "kappa limit": training.kappa_limit,
        "loss": loss.detach(),
        "loss parameters": sorted(name for name, _ in config.loss.build().named_parameters()),
    }


FROM_KAPPA = {"encoder kappa", "loss"}  # the loss is computed from it
AFFECTED = {
    "task.sampler": {"latents"},
    "encoder.sampler": {"sample", "sample gradient"},
    "encoder.sampler_gradient": {"sample gradient"},
    "task.acceptance_constant": {"positives"},
    "task.positives": {"positives"},
    "task.negatives": {"drawn negatives"},
    "task.smoothing": {"truth mu"},
    "task.kappa_link": {"truth kappa"},
    "task.backbone": {"truth kappa"},
    "encoder.kappa_link": FROM_KAPPA,
    "encoder.kappa_width": {"encoder kappa weights", *FROM_KAPPA},
    "encoder.kappa_range": FROM_KAPPA,
    "training.lr_schedule": {"lr"},
    "training.release_version": {"lr"},
    "training.negatives": {"sources"},
    "training.mu_phase_negatives": {"sources"},
    "training.n_negatives": {"count"},
    "training.kappa_limit": {"kappa limit"},
    "loss.learned_as": {"loss parameters"},
    "loss.learned": {"loss parameters"},
}
# Positives are chosen by their latents, few of which change hands where latents change little; and negatives that need
# latents are drawn with them, which shifts the random numbers that positives are chosen by.
MAY_CHANGE_POSITIVES = ("task.sampler", "task.smoothing", "task.kappa_link", "task.backbone", "task.negatives")


TOY_SETTINGS = [setting for setting in SETTINGS if setting.task != "images"]  # the others: tests/tasks/test_cifar.py


def test_every_setting_is_covered() -> None:
    assert {s.path for s in TOY_SETTINGS} == set(AFFECTED) | {s.path for s in SETTINGS if s.loss}


@pytest.fixture(scope="module")
def _brief_smoothing() -> Iterator[None]:
    """A twentieth of its steps moves the modes, too."""
    mu_nets.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pcl.tasks.truth._SMOOTHING_STEPS", 250)
        yield
    mu_nets.cache_clear()


@pytest.mark.parametrize("setting", TOY_SETTINGS, ids=lambda s: s.path)
@pytest.mark.usefixtures("_brief_smoothing")
def test_a_fidelity_setting_changes_what_it_names_and_nothing_else(setting: Setting) -> None:
    # Away from 16 to 32, so that the fixed range differs from the truth's.
    values = {"task__kappa_min": 20.0, "task__kappa_max": 40.0, "training__lr_schedule": "quarters"}
    if setting.path == "task.backbone":
        values["task__dim_x"] = 4
    base = smoke("paper", setting.loss or "mc_info_nce", **values)
    extra: dict[str, Any] = {}
    if setting.path == "loss.partners":
        extra = {"loss.positive_weight": "zero", "training.mu_phase_negatives": "shared"}
    if setting.path == "loss.anchors":
        extra = {
            "loss.positive_weight": "zero", "training.mu_phase_negatives": "shared", "loss.partners": "integrated",
        }  # fmt: skip
    if setting.path in ("training.negatives", "training.mu_phase_negatives"):
        extra = {"task.positives": "vmf"}
    if setting.path == "loss.learned_as":
        extra = {"loss.learn_kappa_pos": True}
    if setting.path == "loss.learned":
        extra = {"loss.learn_a": True}
    if setting.path == RELEASE:
        base = base.with_values({"training.lr_schedule": "phases"})
    before = parts_of(base.with_values(extra))
    others = [v for v in (setting.reference, setting.exact, *setting.others) if v != setting.paper]
    after = parts_of(base.with_values({**extra, setting.path: others[0]}))
    changed = {name for name in before if not _same(before[name], after[name])}
    affected = AFFECTED.get(setting.path, {"loss"})
    may_follow = {"positives"} if setting.path in MAY_CHANGE_POSITIVES else set()
    assert affected <= changed <= affected | may_follow


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.shape == b.shape and torch.equal(a, b)
    return bool(a == b)
