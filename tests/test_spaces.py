"""Search spaces: the paper's grids, cells at every profile and scale, and what malformed files are told."""

import itertools
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from pcl.config import RunConfig, Scale
from pcl.fidelity import Profile
from pcl.studies.space import (
    METRICS,
    Axis,
    Mode,
    Objective,
    SearchSpace,
    Stage,
    Variants,
    load_space,
    negatives_axis,
    space_names,
)
from pcl.training import Run
from tests.smoke import smoke

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


def make(**changes: Any) -> SearchSpace:
    content: dict[str, Any] = {
        "name": "mine",
        "loss": "mc_info_nce",
        "stages": (Stage("grid", {"M": negatives_axis(0, 4), "loss.kappa_pos": (10, 20)}),),
    }
    return SearchSpace(**{**content, **changes})


def error_of(**changes: Any) -> str:
    with pytest.raises(ValueError, match=r".") as error:
        make(**changes)
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
    return text


def test_the_spaces_are_those_of_the_tables() -> None:
    assert space_names() == sorted(SPACES)


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
    # Infinitely many negatives cannot be one of the batch, and images have no known truth.
    reason = r"M=0.* under the profile 'exact': .*infinitely many negatives" if space.task == "toy" else "a known truth"
    if profile == "exact" and (space.loss == "mc_info_nce" or space.task == "images"):
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
        ("loss.kappa_pos", "must not set what the stage 'grid' varies"),
        ("training.n_negatives", "must not set what the stage 'grid' varies"),
        ("loss.n_sample", "Did you mean 'loss.n_samples'"),
    ):
        with pytest.raises(ValueError, match=says) as error:
            space.cells(0, overrides={path: "1"})
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="`profile` must be one of"):
        space.cells(0, profile="papr")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": "a/b"}, "name must be"),
        ({"loss": "hibb"}, "Did you mean 'hib'"),
        ({"task": "toys"}, "`task` must be one of"),
        ({"stages": ()}, "at least one stage"),
        ({"stages": (Stage("grid", {}),)}, "at least one axis"),
        ({"stages": (Stage("grid", {"loss.kappa_po": (1,)}),)}, "Did you mean 'loss.kappa_pos'"),
        ({"stages": (Stage("grid", {"loss.kappa_pos": ()}),)}, "at least one value"),
        ({"stages": (Stage("grid", {"loss.kappa_pos": (1, 1.0)}),)}, "comes twice"),
        ({"stages": (Stage("grid", {"loss.kappa_pos": (1, -1)}),)}, "loss.kappa_pos=-1.0 is not possible"),
        ({"stages": (Stage("grid", {"loss.n_samples": ("many",)}),)}, "whole number"),
        ({"stages": (Stage("grid", {"training.phases": "joint"}),)}, "tuple of values"),
        ({"stages": (Stage("grid", {"M": (0, 1)}),)}, "Unknown path 'M'"),
        ({"stages": (Stage("grid", {"loss.kappa_pos": negatives_axis(0, 1)}),)}, "a name of their own"),
        ({"stages": (Stage("grid", {"M": Variants({})}),)}, "at least one value"),
        ({"stages": (Stage("grid", {"M": Variants({"0": {}})}),)}, "each with settings"),
        ({"stages": (Stage("grid", {"M": Variants({"0": {"loss.b": 1}})}),)}, "Unknown path 'loss.b'"),
        (
            {"stages": (Stage("grid", {"loss.n_samples": range(1, 102), "training.n_batches": range(1, 102)}),)},
            "10,201",
        ),
        ({"stages": (Stage("a", {"loss.kappa_pos": (1,)}), Stage("a", {"training.lr": (1,)}))}, "name of its own"),
        ({"stages": (Stage("a", {"training.lr": (1,)}), Stage("b", {"training.lr": (2,)}))}, "of the stage 'b' do"),
        ({"stages": (Stage("a", {"M": negatives_axis(1), "training.n_negatives": (2,)}),)}, "only one may set"),
        ({"base": {"loss.kappa_pos": 3}}, "both `base` and the axis 'loss.kappa_pos'"),
        ({"base": {"loss.n_sample": 3}}, "Did you mean 'loss.n_samples'"),
        ({"base": {"task.dim": 1}}, "task.dim >= 2"),
        ({"objective": Objective("eval/kappa_rank")}, "`objective.metric` must be one of"),
        ({"tuning_seeds": ()}, "`tuning_seeds` must be"),
        ({"report_seeds": (1, 1)}, "`report_seeds` must be"),
        ({"report_seeds": (True,)}, "`report_seeds` must be"),
        ({"tuning_seeds": (1, 4)}, r"both have [4]"),
        ({"published": {"N": "0"}}, "its axes are M, loss.kappa_pos"),
        ({"published": {"M": 0}}, "has the labels ['0', '4'], but got 0"),
        ({"published": {"loss.kappa_pos": 11}}, "has the values [10.0, 20.0], but got 11"),
    ],
)
def test_malformed_spaces_get_one_sentence(changes: dict[str, Any], says: str) -> None:
    assert says in error_of(**changes)


def test_later_stages_are_checked_too() -> None:
    stages = (Stage("first", {"loss.kappa_pos": (1, 2)}), Stage("second", {"training.lr": (1e-3, 0)}))
    assert "training.lr" in error_of(stages=stages)


def test_sampled_axes() -> None:
    axes = {
        "training.lr": tune.loguniform(1e-5, 1e-3),
        "M": negatives_axis(0, 4),
        "loss.kappa_pos": tune.choice([8, 9]),
    }
    space = make(stages=(Stage("sampled", axes),), published={"M": "4"})
    assert space.is_sampled
    assert space.n_trials == (2,)
    with pytest.raises(ValueError, match="has no list of cells"):
        space.cells(0)
    cell = space.cell_from(0, {"training.lr": 2e-4, "M": "4", "loss.kappa_pos": 8}, scale="smoke")
    assert cell.varied == {"training.lr": 2e-4, "M": "4", "loss.kappa_pos": 8.0}
    assert cell.config.training.n_negatives == 4
    with pytest.raises(ValueError, match="has the axes"):
        space.cell_from(0, {"training.lr": 2e-4})
    assert "training.lr" in error_of(stages=(Stage("sampled", {"training.lr": tune.uniform(-1, 1)}),))
    assert "Did you mean" in error_of(stages=(Stage("sampled", {"training.lrr": tune.uniform(0, 1)}),))
    assert "which is code" in error_of(stages=(Stage("sampled", {"training.lr": tune.sample_from(lambda _: 1)}),))
    grid: Any = {"loss.kappa_pos": tune.grid_search([10, 20])}
    assert make(stages=(Stage("grid", grid),)).n_trials == (2,)


def test_fingerprints_follow_the_content() -> None:
    quantized = [(Stage("s", {"training.lr": tune.quniform(1, 3, q)}),) for q in (0.5, 1)]
    grid: dict[str, Axis] = {"M": negatives_axis(0, 4), "loss.kappa_pos": (10, 20)}
    changes: list[dict[str, Any]] = [
        {},
        {"name": "other"},
        {"loss": "elk"},
        {"base": {"training.lr": 1e-3}},
        {"stages": (Stage("other", grid),)},
        {"stages": (Stage("grid", {**grid, "loss.kappa_pos": (10, 21)}),)},
        {"stages": (Stage("grid", {**grid, "M": negatives_axis(0, 5)}),)},
        {"stages": (Stage("sampled", {"training.lr": tune.uniform(1e-4, 1e-3)}),)},
        {"stages": (Stage("sampled", {"training.lr": tune.loguniform(1e-4, 1e-3)}),)},
        {"stages": (Stage("sampled", {"training.lr": tune.loguniform(1e-4, 2e-3)}),)},
        {"stages": quantized[0]},
        {"stages": quantized[1]},
        {"objective": Objective("eval/kappa_mae", Mode.MIN)},
        {"objective": Objective(mode=Mode.MIN)},
        {"tuning_seeds": (1,)},
        {"report_seeds": (9,)},
    ]
    prints = [make(**change).fingerprint() for change in changes]
    assert len(set(prints)) == len(changes)
    assert prints == [make(**change).fingerprint() for change in changes]
    assert make(published={"M": "4"}).fingerprint() == prints[0]
    assert pickle.loads(pickle.dumps(make(**changes[7]))).fingerprint() == prints[7]


FILE = """
from pcl.studies.space import SearchSpace, Stage

SPACE = SearchSpace("mine", "elk", (Stage("grid", {"loss.kappa_pos": (1, 2)}),))
"""


def test_a_users_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    assert load_space(str(tmp_path / "mine.py")).n_trials == (2,)
    monkeypatch.chdir(tmp_path)
    assert load_space("mine.py") == load_space("./mine.py")
    (tmp_path / "mine.py").write_text(FILE.replace("(1, 2)", "(1, 2, 3)"))
    assert load_space("mine.py").n_trials == (3,)  # nothing is kept of the first reading
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "there is no `SPACE`"),
        ("SPACE = 3", "`SPACE` is of the type int"),
        ("x = 1\ny = 1 / 0", "line 2: ZeroDivisionError: division by zero."),
        ("x = 1\ny = (", "line 2: SyntaxError"),
        ("import no_such_module", "line 1: ModuleNotFoundError"),
        ("raise SystemExit(3)", "line 1: SystemExit: 3."),
        ("raise RuntimeError('two\\nlines')", "line 1: RuntimeError: two."),
        ("raise KeyboardInterruption", "line 1: NameError"),
        ("def f():\n    assert False\nf()", "line 2: AssertionError."),
        (FILE.replace("kappa_pos", "kappa_po"), "line 4: Search space 'mine': Unknown path 'loss.kappa_po'."),
        (FILE.replace("SearchSpace(", "SearchSpace(1, "), "line 4: TypeError"),
        ("\0", "cannot be read"),
    ],
)
def test_malformed_files_get_one_sentence(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "space.py"
    file.write_text(content)
    with pytest.raises(ValueError, match=r".") as error:
        load_space(str(file))
    assert says in str(error.value)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


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


def test_spaces_load_without_ray() -> None:
    code = (
        "import sys; from pcl.studies.space import load_space, space_names; names = space_names(); "
        "assert 'search_spaces.toy_elk' not in sys.modules; [load_space(name) for name in names]; "
        "print('ray' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_metrics_are_those_of_a_run() -> None:
    reported = list(Run(smoke(), (4,)))[-1].metrics
    assert set(METRICS["toy"]) == {key for key in reported if not key.startswith("time/")}


@pytest.mark.parametrize("loss", ["mc_info_nce", "hib", "elk", "info_nce"])
@pytest.mark.parametrize("profile", ["paper", "reference"])
@pytest.mark.parametrize("scale", [scale.value for scale in Scale])
def test_image_configurations(loss: str, profile: str, scale: str) -> None:
    """They round-trip, and have their own paths and no others."""
    config = RunConfig.of(loss=loss, profile=profile, scale=scale, task="images")
    flat = config.flat()
    assert flat["task_name"] == "images"
    assert {path for path in flat if path.startswith("task.")} == {
        "task.data", "task.labels", "task.fold", "task.n_eval", "task.negative_weights", "task.negative_pool",
        "task.augmentation",
    }  # fmt: skip
    assert RunConfig.from_flat(flat) == config
    assert flat["encoder.sampler"] == ("released" if profile == "reference" else "exact")
    with pytest.raises(ValueError, match=r"Unknown path 'task\.dim'"):
        config.with_values({"task.dim": 10})
    with pytest.raises(ValueError, match="a known truth, which images lack"):
        RunConfig.of(loss=loss, profile="exact", scale=scale, task="images")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"task.fold": 5}, "0 <= task.fold <= 4"),
        ({"task.labels": "softer"}, "soft, hard, cifar10_hard"),
        ({"task.n_eval": 2}, "task.n_eval >= 3"),
        ({"encoder.dim": 1}, "encoder.dim >= 2"),
        ({"encoder.head_gain": 0}, "encoder.head_gain"),
    ],
)
def test_bad_image_values(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RunConfig.of(values, task="images")


def test_records_from_before_there_were_tasks() -> None:
    config = RunConfig.of(scale="smoke")
    old = {path: value for path, value in config.flat().items() if path != "task_name"}
    assert RunConfig.from_flat(old) == config
