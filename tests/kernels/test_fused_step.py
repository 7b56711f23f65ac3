"""The fused step of the controlled experiment against the plain one, on a GPU."""

import pytest
import torch

from pcl.config.run_config import RunConfig
from pcl.config.schedule import Trained
from pcl.tasks import Negatives
from pcl.training.run import Run
from pcl.training.steps.training_step import TrainingStep

LEARNED_KAPPA_POS: dict[str, object] = {"loss.learn_kappa_pos": True}
LEARNED_A_AND_B: dict[str, object] = {"loss.learn_a": True, "loss.learned": "a_and_b"}

PHASES: list[tuple[str, str, Trained, Negatives, dict[str, object]]] = [
    ("mc_info_nce", "reference", Trained.KAPPA, Negatives.DRAWN, {}),
    ("mc_info_nce", "reference", Trained.MU, Negatives.IN_BATCH, {}),
    ("mc_info_nce", "paper", Trained.JOINT, Negatives.DRAWN, {}),
    ("mc_info_nce", "exact", Trained.KAPPA, Negatives.POOL, {}),
    ("mc_info_nce", "exact", Trained.MU, Negatives.SHARED, {}),
    ("mc_info_nce", "exact", Trained.JOINT, Negatives.POOL, {}),
    ("hib", "reference", Trained.JOINT, Negatives.IN_BATCH, {}),
    ("hib", "paper", Trained.JOINT, Negatives.DRAWN, {}),
    ("mc_info_nce", "reference", Trained.KAPPA, Negatives.DRAWN, LEARNED_KAPPA_POS),
    ("mc_info_nce", "reference", Trained.MU, Negatives.IN_BATCH, {**LEARNED_KAPPA_POS, "loss.learned_as": "log"}),
    ("mc_info_nce", "paper", Trained.JOINT, Negatives.DRAWN, {**LEARNED_KAPPA_POS, "training.n_negatives": 1}),
    ("mc_info_nce", "exact", Trained.JOINT, Negatives.POOL, LEARNED_KAPPA_POS),
    ("hib", "reference", Trained.JOINT, Negatives.IN_BATCH, LEARNED_A_AND_B),
    ("hib", "reference", Trained.MU, Negatives.DRAWN, {**LEARNED_A_AND_B, "loss.learned_as": "log"}),
    ("hib", "paper", Trained.KAPPA, Negatives.DRAWN, {"loss.learn_a": True}),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("loss", "profile", "trained", "source", "varied"), PHASES)
def test_fused_step_has_the_plain_steps_statistics(
    loss: str, profile: str, trained: Trained, source: Negatives, varied: dict[str, object]
) -> None:
    """Loss and gradients agree in mean within four standard errors, for two runs side by side."""
    from pcl.training.steps.fused_step import FusedStep  # noqa: PLC0415  needs Triton

    # Few repeats of large batches: the plain step takes as long for many anchors as for few.
    device, repeats = torch.device("cuda"), 50
    values = {
        "training.n_negatives": 16, "training.batch_size": 512, "loss.n_samples": 16, "task.smoothing": "none",
        "training.n_batches": 100_000,  # the bank of a short training has few inputs, whose mean is another
    }  # fmt: skip
    config = RunConfig.of({**values, **varied}, loss=loss, profile=profile, scale="smoke")
    run = Run(config, (4, 5), "cuda", is_fast=False)
    results = []
    for kind in (TrainingStep, FusedStep):
        task = config.task.restore({name: value.cpu() for name, value in run.step.task.state_dict().items()})
        encoder = config.encoder.build_for(config.task.inputs, (4, 5))
        encoder.load_state_dict(run.step.encoder.state_dict())
        step = kind(config, task, encoder, device, seed=1)
        parameters = step.enter(trained, source)
        assert bool(list(step.losses.parameters())) is bool(varied)
        with torch.no_grad():  # a learned number differs between the runs
            for index, number in enumerate(step.losses.parameters()):
                number.add_(0.1 * (1 + index))
        rows = []
        for _ in range(repeats):
            losses = step.mean_losses(step.prepare())
            gradients = torch.autograd.grad(losses.sum(), parameters)
            step.seed_and_step[1] += 1
            rows.append(torch.cat([losses.detach(), *(g.flatten()[:: max(1, g.numel() // 20)] for g in gradients)]))
        table = torch.stack(rows).double()
        results.append((table.mean(0), table.var(0) / repeats))
    (mean_a, var_a), (mean_b, var_b) = results
    z = (mean_a - mean_b) / (var_a + var_b).sqrt().clamp(min=1e-12)
    assert z[:2].abs().max() < 4
    assert z.abs().max() < 5.5
    # Components are correlated: two plain steps have 0.8 to 1.7 (eight pairs of seeds).
    assert z.square().mean() < 2.5


TRAININGS: list[tuple[str, str, dict[str, object]]] = [
    ("paper", "mc_info_nce", {}),
    ("reference", "mc_info_nce", {}),
    ("exact", "mc_info_nce", {}),
    ("exact", "mc_info_nce", {"loss.anchors": "posterior"}),
    ("reference", "mc_info_nce", {"loss.learn_kappa_pos": True}),
    ("reference", "mc_info_nce", {"encoder.backbone": "shared"}),
    ("reference", "hib", {"loss.learn_a": True, "training.phases": "joint"}),
    ("reference", "hib", {"training.negatives": "in_batch", "training.phases": "joint", "training.eval_every": 120}),
    ("paper", "hib", {"loss.a": 2.0, "loss.b": 1.0}),
    ("reference", "elk", {"training.phases": "joint"}),
    ("reference", "info_nce", {}),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("profile", "loss", "varied"), TRAININGS, ids=str)
def test_graph_trains_like_the_plain_path(profile: str, loss: str, varied: dict[str, object]) -> None:
    # A plain step of guided anchors is ten thousand small kernels: few steps, at a high rate and on large batches.
    values = {
        "training.n_batches": 120, "training.eval_every": 60, "training.batch_size": 128, "training.n_negatives": 16,
        "training.lr": 5e-4, "loss.n_samples": 16, "task.smoothing": "none", **varied,
    }  # fmt: skip
    if profile == "exact":
        values |= {"training.n_batches": 60, "training.eval_every": 30}
    if loss in ("elk", "info_nce"):
        del values["loss.n_samples"]
    config = RunConfig.of(values, loss=loss, profile=profile, scale="smoke")
    fast, plain = (list(Run(config, (4, 5, 6), "cuda", is_fast=is_fast)) for is_fast in (True, False))
    for a, b in zip(fast, plain, strict=True):
        assert a.metrics["train/loss"] == pytest.approx(b.metrics["train/loss"], rel=0.05, abs=0.02)
        # HIB with one negative has hardly left its start: ten plain runs have 0.82 to 0.86 at the end.
        noise = 0.05 if varied.get("training.negatives") == "in_batch" else 0.02
        assert a.metrics["eval/mu_mae"] == pytest.approx(b.metrics["eval/mu_mae"], abs=noise)
