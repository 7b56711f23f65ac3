"""Search spaces: the paper's grids, cells at every profile and scale, and what malformed files are told."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from pcl.config.fidelity import Profile
from pcl.config.run_config import RunConfig, Scale
from pcl.studies.space.search_space import Mode, Objective, Stage, load_space, negatives_axis, space_names
from tests.support.spaces import make

PHASES = {"yes": "mu kappa", "no": "joint"}
M, YES_NO, KAPPA_POS = ["0", "1", "32"], [True, False], ["16", "32", "64"]
# The two tables of grids of the paper: axes as this project names them, all values, the published one.
TOY: dict[str, list[Any]] = {"M": M, "loss.learn_kappa_pos": YES_NO, "training.phases": list(PHASES.values())}
CIFAR: dict[str, list[Any]] = {
    "encoder.dim": [8, 16],
    "M": M,
    "kappa_pos": KAPPA_POS,
    "training.phases": list(PHASES.values()),
}
AXES: dict[str, list[dict[str, list[Any]]]] = {
    "toy_hib": [
        {"M": M, "loss.learn_a": YES_NO, "training.phases": list(PHASES.values())},
        {"loss.a": [0.5, 1, 2, 4], "loss.b": [-8, -4, -2, -1, 0, 1, 2, 4, 8]},
    ],
    "toy_elk": [TOY],
    "toy_mcinfonce": [TOY],
    "toy_infonce": [{"M": M}],
    "cifar_hib": [CIFAR, {"loss.a": [0.5, 1, 2, 4], "loss.b": [-2, -1, 0, 1, 2]}],
    "cifar_elk": [CIFAR],
    "cifar_mcinfonce": [CIFAR],
    "cifar_mcinfonce_hard": [CIFAR],
    "cifar_mcinfonce_cifar10": [CIFAR],
}
PUBLISHED: dict[str, tuple[Any, ...]] = {
    "toy_hib": ("0", False, PHASES["no"], 1, 0),
    "toy_elk": ("1", False, PHASES["no"]),
    "toy_mcinfonce": ("32", False, PHASES["yes"]),
    "toy_infonce": (),
    "cifar_hib": (8, "0", "32", PHASES["yes"], 2, 1),
    "cifar_elk": (8, "1", "32", PHASES["no"]),
    "cifar_mcinfonce": (8, "32", "16", PHASES["yes"]),
    "cifar_mcinfonce_hard": (16, "0", "16", PHASES["no"]),
    "cifar_mcinfonce_cifar10": (8, "0", "64", PHASES["yes"]),
}
TRIALS = {"toy_hib": (12, 36), "toy_infonce": (3,), "cifar_hib": (36, 20)}
LABELS = {"cifar_mcinfonce_hard": "hard", "cifar_mcinfonce_cifar10": "cifar10_hard"}
SPACES = list(AXES)


def first_axes(stage: Stage) -> dict[str, list[Any]]:
    return {name: [varied[name] for varied in stage.grid()] for name in stage.axes}


def test_the_spaces_are_those_of_the_tables() -> None:
    assert space_names() == sorted(
        [*SPACES, "cifar_exact", "features_mcinfonce", "images_mcinfonce", "toy_exact", "toy_small"]
    )


def test_the_small_space_is_of_the_theorem_and_judges_the_size_of_kappa() -> None:
    space = load_space("toy_small")
    assert space.objective == Objective("eval/kappa_mae", Mode.MIN)
    assert not space.published
    for scale in Scale:
        for cell in space.cells(0, profile="exact", scale=scale.value):
            config = cell.config
            assert (config.training.n_batches, config.flat()["loss.anchors"]) == (800, "guided")


@pytest.mark.parametrize("profile", ["paper", "reference"])
def test_the_space_of_own_images_draws_negatives_among_all_under_every_profile(profile: str) -> None:
    space = load_space("images_mcinfonce")
    assert (space.n_trials, space.objective) == ((8,), Objective("val/crop_rank_corr"))
    for cell in space.cells(0, profile=profile):
        flat = cell.config.flat()
        assert (flat["task.negative_pool"], flat["task.augmentation"]) == ("all", "crop_flip")
        assert flat["loss.kappa_pos"] == flat["encoder.head_gain"] == float(cell.varied["kappa_pos"])


def test_the_recipe_of_exact_is_a_cell_of_the_study_that_chose_it() -> None:
    space = load_space("toy_exact")
    recipe = RunConfig.of(profile="exact")
    assert recipe in [cell.config for cell in space.cells(0, profile="exact", scale="paper")]
    assert (space.tuning_seeds, space.report_seeds) == ((1, 2, 3), tuple(range(9, 29)))
    assert space.objective == Objective("eval/kappa_mae", Mode.MIN)


def test_the_recipe_of_exact_for_images_is_a_cell_of_its_space() -> None:
    cells = [cell.config for cell in load_space("cifar_exact").cells(0, profile="exact", scale="paper")]
    assert len(cells) == 6
    assert RunConfig.of(task="images", profile="exact", scale="paper") in cells


def test_a_published_winner_is_of_the_papers_data_alone() -> None:
    images, toy = load_space("cifar_mcinfonce"), load_space("toy_mcinfonce")
    assert images.published_for("cifar10h-0123456789abcdef") == images.published
    assert toy.published_for("toy") == toy.published
    for data in ("embedded-0123456789abcdef", "my-cats-0123456789abcdef", "cifar10h-mine-0123456789abcdef"):
        assert not images.published_for(data)


@pytest.mark.parametrize("name", SPACES)
def test_a_space_is_the_papers(name: str) -> None:
    space = load_space(name)
    assert space.name == name
    declared = [{axis: list(dict.fromkeys(values)) for axis, values in first_axes(s).items()} for s in space.stages]
    assert declared == AXES[name]
    assert [list(stage.axes) for stage in space.stages] == [list(axes) for axes in AXES[name]]
    assert space.n_trials == TRIALS.get(name, (36,) if name.startswith("cifar") else (12,))
    assert tuple(space.published.values()) == PUBLISHED[name]
    assert not space.is_sampled
    assert space.tuning_seeds == (1, 2, 3)
    assert space.report_seeds == (4, 5, 6, 7, 8)
    metric = "val/crop_rank_corr" if name.startswith("cifar") else "eval/kappa_rank_corr"
    assert space.objective == Objective("eval/mu_rank_corr" if name == "toy_infonce" else metric, Mode.MAX)


@pytest.mark.parametrize("name", [name for name in SPACES if PUBLISHED[name]])
def test_the_published_winner_is_among_the_cells(name: str) -> None:
    space = load_space(name)
    winner: dict[str, Any] = {}
    for index, stage in enumerate(space.stages):
        expected = {**winner, **{axis: space.published[axis] for axis in stage.axes}}
        (cell,) = [cell for cell in space.cells(index, winner) if cell.varied == expected]
        winner = cell.varied
    assert winner == space.published
    flat = cell.config.flat()
    m = space.published["M"]
    assert flat["training.negatives"] == ("in_batch" if m == "0" else "drawn")
    assert m == "0" or flat["training.n_negatives"] == int(m)
    assert flat["training.phases"] == space.published["training.phases"]
    if name.startswith("cifar"):
        assert flat["task.labels"] == LABELS.get(name, "soft")
        assert flat["encoder.head_gain"] == float(space.published["kappa_pos"])
        assert flat.get("loss.kappa_pos") == (None if name == "cifar_hib" else float(space.published["kappa_pos"]))
        sizes = {"training.n_batches": 8192, "training.batch_size": 128, "training.eval_every": 16, "training.lr": 1e-4}
        assert {path: flat[path] for path in sizes} == sizes
        assert flat.get("loss.n_samples", 128) == 128


@pytest.mark.parametrize("scale", [scale.value for scale in Scale])
@pytest.mark.parametrize("profile", [profile.value for profile in Profile])
@pytest.mark.parametrize("name", SPACES)
def test_every_cell_is_made_or_refused_for_a_reason(name: str, profile: str, scale: str) -> None:
    space = load_space(name)
    # Infinitely many negatives cannot be one of the batch.
    reason = r"M=0.* under the profile 'exact': .*infinitely many negatives"
    if profile == "exact" and space.loss == "mc_info_nce":
        with pytest.raises(ValueError, match=reason) as error:
            space.cells(0, profile=profile, scale=scale)
        assert "\n" not in str(error.value)
        return
    winner: dict[str, Any] = {}
    for index in range(len(space.stages)):
        cells = space.cells(index, winner, profile=profile, scale=scale)
        assert len({cell.config.fingerprint() for cell in cells}) == len(cells) == space.n_trials[index]
        for cell in cells:
            assert (cell.config.profile.value, cell.config.scale.value) == (profile, scale)
            assert RunConfig.from_flat(cell.config.flat()) == cell.config
            # A scale never changes the grid.
            assert cell.varied["M"] == "0" or cell.config.training.n_negatives == int(str(cell.varied["M"]))
        winner = cells[-1].varied


def test_m_is_about_the_phases_that_there_are() -> None:
    """InfoNCE has mu phases alone; other losses have in-batch negatives there whatever M is."""
    for name, is_mu in (("toy_infonce", True), ("toy_mcinfonce", False)):
        for cell in load_space(name).cells(0):
            training = cell.config.training
            source = "in_batch" if cell.varied["M"] == "0" else "drawn"
            assert training.negatives_at(len(training.phases) - 1).value == source
            assert is_mu or training.mu_phase_negatives.value == "in_batch"


def test_the_grid_has_the_declared_order() -> None:
    stage = Stage("grid", {"M": negatives_axis(0, 4), "loss.kappa_pos": (10, 20)})
    varied = [tuple(cell.varied.values()) for cell in make(stages=(stage,)).cells(0)]
    assert varied == list(itertools.product(["0", "4"], [10.0, 20.0]))


def test_winners_pass_from_stage_to_stage() -> None:
    stages = tuple(Stage(path, {path: values}) for path, values in THREE.items())
    space = make(stages=stages, base={"loss.n_samples": 3})
    assert space.n_trials == (2, 2, 2)
    first = space.cells(0)
    assert [cell.config.flat()["loss.n_samples"] for cell in first] == [3, 3]  # of `base`, until its stage comes
    second = space.cells(1, first[1].varied)
    assert all(cell.varied["loss.kappa_pos"] == 20 for cell in second)
    third = space.cells(2, second[0].varied)
    assert third[1].varied == {"loss.kappa_pos": 20.0, "training.lr": 1e-4, "loss.n_samples": 8}
    flat = third[1].config.flat()
    assert {axis: flat[axis] for axis in third[1].varied} == third[1].varied
    for index, winner in ((1, {}), (0, first[0].varied), (2, first[0].varied), (1, {"loss.kappa": 1})):
        with pytest.raises(ValueError, match=r"the winner before .* has the axes"):
            space.cells(index, winner)
    with pytest.raises(ValueError, match=r"has the values \[10\.0, 20\.0\], but got 11"):
        space.cells(1, {"loss.kappa_pos": 11})


THREE = {"loss.kappa_pos": (10, 20), "training.lr": (1e-4, 1e-3), "loss.n_samples": (4, 8)}


def test_overrides() -> None:
    space = make(base={"training.lr": 1e-3})
    cells = space.cells(0, scale="smoke", overrides={"training.lr": "2e-3", "training.n_batches": "3"})
    assert {cell.config.training.lr for cell in cells} == {2e-3}
    assert {cell.config.training.n_batches for cell in cells} == {3}
    for path, says in (
        ("loss.kappa_pos", "must not be set, as the stage 'grid' varies it"),
        ("training.n_negatives", "must not be set, as the stage 'grid' varies it"),
        ("loss.n_sample", "Did you mean 'loss.n_samples'"),
    ):
        with pytest.raises(ValueError, match=says) as error:
            space.cells(0, overrides={path: "1"})
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="`profile` must be one of"):
        space.cells(0, profile="papr")


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Did you mean 'toy_mcinfonce'") as error:
        load_space("toy_mcinfonc")
    assert all(name in str(error.value) for name in SPACES)
    for text in (str(tmp_path), str(tmp_path / "none.py"), "none.py", "no/such"):
        with pytest.raises(ValueError, match="There is no search space file"):
            load_space(text)
    for text in ("", "__init__", "os", "toy_elk\n"):
        with pytest.raises(ValueError, match="Unknown search space"):
            load_space(text)
