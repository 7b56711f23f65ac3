"""RunConfig: dotted paths, profiles, scales, errors."""

import itertools
import math
from dataclasses import replace

import pytest

from pcl.config.experiments import experiment_of
from pcl.config.fidelity import RELEASE, SETTINGS, Profile, Setting
from pcl.config.run_config import RunConfig, Scale
from pcl.config.schedule import Keep, LrSchedule, Phases, TrainingConfig
from pcl.losses import LOSSES, PositiveWeight
from pcl.studies.paper.published import published_tables


def test_a_default_that_a_recipe_overrides_round_trips() -> None:
    """Records leave it out, as they did before the setting was there."""
    recipe = RunConfig.of(task="images", profile="exact")
    best = recipe.with_values({"training.keep": "best"})
    assert recipe.training.keep is Keep.LAST
    assert "training.keep" not in best.flat()
    assert [RunConfig.from_flat(config.flat()) for config in (best, recipe)] == [best, recipe]


@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("profile", [p.value for p in Profile])
@pytest.mark.parametrize("scale", [s.value for s in Scale])
def test_every_configuration_round_trips(loss: str, profile: str, scale: str) -> None:
    config = RunConfig.of(loss=loss, profile=profile, scale=scale)
    again = RunConfig.from_flat(config.flat())
    assert again == config
    assert again.fingerprint() == config.fingerprint()


def test_profiles_set_what_they_name() -> None:
    for profile in Profile:
        for loss, task in itertools.product(LOSSES, ("toy", "images")):
            flat = RunConfig.of(loss=loss, profile=profile.value, task=task).flat()
            recipes = experiment_of(task).recipes
            own = recipes.get((profile, loss), recipes.get((profile, ""), {})).get(Scale.PAPER, {})
            for setting in SETTINGS:
                if setting.loss in ("", loss) and setting.task in ("", task) and setting.path in flat:
                    assert flat[setting.path] == own.get(setting.path, setting.of(profile))


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.path)
def test_each_setting_varies_alone(setting: Setting) -> None:
    """From `paper`, the value of another profile at one path changes that path and no other."""
    base = RunConfig.of(loss=setting.loss or "mc_info_nce", profile="paper", task=setting.task or "toy")
    others = {setting.reference, setting.exact, *setting.others} - {setting.paper}
    assert others
    for value in others:
        values = {setting.path: value}
        if setting.path == "loss.partners":
            values |= {"loss.positive_weight": PositiveWeight.ZERO, "training.mu_phase_negatives": "shared"}
        if setting.path == "loss.anchors":
            values |= {
                "loss.positive_weight": PositiveWeight.ZERO, "training.mu_phase_negatives": "shared",
                "loss.partners": "integrated",
            }  # fmt: skip
        if value == "pool":
            values["task.positives"] = "vmf"
        changed = base.with_values(values)
        before, after = base.flat(), changed.flat()
        follow = {"training.lr_decay"} if setting.path == RELEASE else set()
        assert {path for path in before if before[path] != after[path]} == {*values, *follow}
        assert changed.fingerprint() != base.fingerprint()


@pytest.mark.parametrize(
    ("task", "version", "decay", "optimizer"),
    [("toy", "first", 0.1, "adam"), ("toy", "last", 0.5, "adam"),
     ("images", "first", 0.1, "adam"), ("images", "last", 0.5, "adamw")],
)  # fmt: skip
def test_a_version_of_the_release_sets_decay_and_optimizer(
    task: str, version: str, decay: float, optimizer: str
) -> None:
    assert RunConfig.of(profile="reference", task=task).flat()[RELEASE] == "first"
    chosen = RunConfig.of({RELEASE: version}, profile="reference", task=task)
    for config in (chosen, RunConfig.of(profile="reference", task=task).with_values({RELEASE: version})):
        flat = config.flat()
        assert (flat["training.lr_decay"], flat["training.optimizer"]) == (decay, optimizer)
        assert RunConfig.from_flat(flat) == config
    # What is set beside it wins.
    assert RunConfig.of({"training.lr_decay": 0.3, RELEASE: version}, task=task).training.lr_decay == 0.3
    by_hand = {"loss_name": "mc_info_nce", "profile": "reference", "scale": "smoke", "training.lr": 0.1}
    assert RunConfig.from_flat(by_hand) == RunConfig.of({"training.lr": 0.1}, profile="reference", scale="smoke")


@pytest.mark.parametrize(("profile", "of_plane"), [("paper", "in_batch"), ("reference", "drawn"), ("exact", "pool")])
def test_in_the_plane_the_release_draws_negatives_in_mu_phases_too(profile: str, of_plane: str) -> None:
    path, plane = "training.mu_phase_negatives", {"task.dim": 2, "task.dim_x": 2, "encoder.dim": "2"}
    assert RunConfig.of(plane, profile=profile).flat()[path] == of_plane
    assert RunConfig.of(profile="reference").flat()[path] == "in_batch"
    assert RunConfig.of({"encoder.dim": 2}, profile="reference", task="images").flat()[path] == "in_batch"
    assert RunConfig.of({**plane, path: "in_batch"}, profile="reference").flat()[path] == "in_batch"
    (row,) = next(table for table in published_tables() if table.name == "fig:2dplot").rows
    assert row.config("reference", "paper")[path] == "drawn"
    assert row.config("reference", "paper")["training.n_negatives"] == 1


def test_a_shared_encoder_has_a_shared_truth_under_reference_alone() -> None:
    for profile, backbone in (("paper", "independent"), ("reference", "shared")):
        assert RunConfig.of({"encoder.backbone": "shared"}, profile=profile).flat()["task.backbone"] == backbone
        given = {"encoder.backbone": "shared", "task.backbone": "independent"}
        assert RunConfig.of(given, profile=profile).flat()["task.backbone"] == "independent"
    assert RunConfig.of(profile="reference").flat()["task.backbone"] == "independent"


def test_values_are_read_as_their_type() -> None:
    values = {
        "loss.n_samples": "16",
        "training.lr": "3e-4",
        "loss.learn_kappa_pos": "true",
        "training.phases": "mu:3 kappa",
    }
    config = RunConfig.of(values)
    flat = config.flat()
    assert flat["loss.n_samples"] == 16
    assert flat["training.lr"] == 3e-4
    assert flat["loss.learn_kappa_pos"] is True
    assert flat["training.phases"] == "mu:3 kappa"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"loss.n_sample": 1}, "Did you mean 'loss.n_samples'"),
        ({"loss.n_samples": 0}, "n_samples >= 1"),
        ({"loss.n_samples": "1.5"}, "whole number"),
        ({"loss.n_samples": True}, "whole number"),
        ({"task.dim": 1}, "task.dim >= 2"),
        ({"encoder.dim": 1}, "encoder.dim >= 2"),
        ({"task.family": "cauchy"}, "vmf, gaussian, laplace, dirac"),
        ({"task.kappa_min": 40}, "task.kappa_min < task.kappa_max"),
        ({"task.kappa_max": math.inf}, "task.family=dirac"),
        ({"training.phases": "mu kapa"}, "mu, kappa, joint"),
        ({"training.phases": ""}, "At least one phase"),
        ({"training.phases": "mu:-1"}, "positive number"),
        ({"training.n_batches": 0}, "n_batches >= 1"),
        ({"training.lr": 0}, "training.lr"),
        ({"loss.partners": "integrated"}, "positive_weight"),
        ({"loss.learn_kappa_pos": "maybe"}, "true or false"),
        ({"task.kappa_min": 0.5}, "1 < task.kappa_min"),
        ({"task.negatives": "reject_positives", "training.negatives": "shared"}, "each anchor's own"),
        ({"encoder.backbone": "shared", "encoder.dim": 8}, "needs inputs and latents of one dimension"),
        ({"task.backbone": "shared", "task.dim": 8}, "needs inputs and latents of one dimension"),
        ({"training.kappa_limit": 0}, "0 < training.kappa_limit"),
        ({"training.negatives": "pool"}, "need `task.positives=vmf`"),
    ],
)
def test_bad_values_get_one_sentence(values: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        RunConfig.of(values)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["loss", "profile", "scale"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must be one of"):
        RunConfig.of(**{name: "papr"})  # type: ignore[arg-type]


def test_info_nce_has_no_kappa_phase() -> None:
    assert str(RunConfig.of(loss="info_nce").training.phases) == "mu"
    with pytest.raises(ValueError, match="no gradient in kappa"):
        RunConfig.of({"training.phases": "mu kappa"}, loss="info_nce")


def test_schedules_of_text_and_release() -> None:
    quarters = TrainingConfig(n_batches=100)
    assert [quarters.lr_at(b) for b in (0, 24, 25, 50, 99)] == pytest.approx([1e-4, 1e-4, 1e-5, 1e-6, 1e-7])
    phases = TrainingConfig(n_batches=100, lr_schedule=LrSchedule.PHASES, lr_decay=0.5)
    assert [phases.lr_at(b) * 1e4 for b in (0, 25, 50, 75)] == pytest.approx([1, 0.5, 0.5**0.5, 0.5**1.5])
    joint = TrainingConfig(n_batches=100, lr_schedule=LrSchedule.PHASES, lr_decay=0.5, phases=Phases.parse("joint"))
    assert [joint.lr_at(b) * 1e4 for b in (0, 49, 50, 99)] == pytest.approx([1, 1, 0.5, 0.5])


@pytest.mark.parametrize(
    ("phases", "factors", "stops"),
    [
        ("mu kappa", [1, 1, 0.3, 0.3], [50, 100]),
        ("joint", [1, 1, 0.3, 0.3], [50, 100]),
        ("mu:3 kappa", [1, 1, 1, 0.3], [75, 100]),
        ("mu kappa mu kappa", [1, 0.3, 0.09, 0.027], [25, 50, 75, 100]),
    ],
)
def test_released_images_have_rates_by_phase_alone(phases: str, factors: list[float], stops: list[int]) -> None:
    values = {"training.phases": phases, "training.n_batches": 100, "training.lr_decay": 0.3}
    training = RunConfig.of(values, profile="reference", task="images").training
    assert [training.lr_at(b) * 1e4 for b in (0, 25, 50, 75)] == pytest.approx(factors)
    assert [training.lr_at(b) * 1e4 for b in (24, 49, 74, 99)] == pytest.approx(factors)
    training = replace(training, eval_every=100)
    assert {training.next_stop(batch) for batch in range(100)} >= set(stops)
    assert RunConfig.of(profile="reference").training.lr_schedule is LrSchedule.PHASES


@pytest.mark.parametrize("schedule", LrSchedule)
@pytest.mark.parametrize("text", ["mu kappa", "joint", "mu:3 kappa:1 mu kappa"])
def test_nothing_changes_between_stops(schedule: LrSchedule, text: str) -> None:
    """Between two stops the phase and the learning rate are constant, and evaluations fall on stops."""
    training = TrainingConfig(n_batches=97, eval_every=10, lr_schedule=schedule, phases=Phases.parse(text))
    batch, stops = 0, []
    while batch < training.n_batches:
        stop = training.next_stop(batch)
        stops.append(stop)
        assert {training.phase_at(b) for b in range(batch, stop)} == {training.phase_at(batch)}
        assert {training.lr_at(b) for b in range(batch, stop)} == {training.lr_at(batch)}
        batch = stop
    assert stops[-1] == 97
    assert set(range(10, 97, 10)) <= set(stops)


RECIPE = {
    "encoder.hidden": "shallow", "training.lr": 1e-2, "training.phases": "mu kappa joint:4",
    "training.n_batches": 9000, "training.batch_size": 512, "training.n_negatives": 1024, "loss.n_samples": 32,
    "training.lr_schedule": "phases", "training.lr_decay": 0.1, "training.negatives": "pool", "loss.anchors": "guided",
    "loss.partners": "integrated", "task.positives": "vmf",
}  # fmt: skip


def test_exact_alone_is_the_recipe_of_mc_info_nce() -> None:
    flat = RunConfig.of(profile="exact").flat()
    assert {path: flat[path] for path in RECIPE} == RECIPE
    phases = {scale.value: str(RunConfig.of(profile="exact", scale=scale.value).training.phases) for scale in Scale}
    assert phases == {"smoke": "mu kappa joint:4", "quick": "mu:2 kappa joint:4", "paper": "mu kappa joint:4"}
    estimates = [RunConfig.of(profile="exact", scale=scale).flat()["loss.log_mean"] for scale in ("quick", "paper")]
    assert estimates == ["corrected", "corrected"]
    assert RunConfig.of({"training.lr": 1e-3}, profile="exact").training.lr == 1e-3


def test_other_losses_and_profiles_train_as_published() -> None:
    for loss, profile in [*((loss, "exact") for loss in LOSSES if loss != "mc_info_nce"), ("mc_info_nce", "reference")]:
        training = RunConfig.of(loss=loss, profile=profile).training
        assert (training.n_batches, training.lr) == (100_000, 1e-4)
