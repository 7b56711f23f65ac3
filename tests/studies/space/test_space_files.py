"""Search spaces that users write: what malformed ones are told, their files, and configurations of images."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from pcl.config.run_config import EXPERIMENTS, RunConfig, Scale
from pcl.metrics import names
from pcl.studies.space.search_space import Axis, Mode, Objective, Stage, Variants, load_space, negatives_axis
from pcl.training.run import Run
from tests.support.smoke import smoke
from tests.support.spaces import make


def error_of(**changes: Any) -> str:
    with pytest.raises(ValueError, match=r".") as error:
        make(**changes)
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
    return text


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
from pcl.studies.space.search_space import SearchSpace, Stage

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


def test_metrics_are_those_of_a_run() -> None:
    reported = {key for key in list(Run(smoke(), (4,)))[-1].metrics if not key.startswith("time/")}
    aimed_at = {*names.COVERAGE.values(), names.KAPPA_SLOPE, names.KAPPA_INTERCEPT}  # neither large nor small is good
    assert set(EXPERIMENTS["toy"].metrics) == reported - aimed_at
    assert aimed_at < reported


@pytest.mark.parametrize("loss", ["mc_info_nce", "hib", "elk", "info_nce"])
@pytest.mark.parametrize("profile", ["paper", "reference", "exact"])
@pytest.mark.parametrize("scale", [scale.value for scale in Scale])
def test_image_configurations(loss: str, profile: str, scale: str) -> None:
    """They round-trip, and have their own paths and no others."""
    config = RunConfig.of(loss=loss, profile=profile, scale=scale, task="images")
    flat = config.flat()
    assert flat["task_name"] == "images"
    assert {path for path in flat if path.startswith("task.")} == {
        "task.data", "task.labels", "task.fold", "task.n_eval", "task.negative_weights", "task.negative_pool",
        "task.augmentation", "task.folds", "task.crops",
    }  # fmt: skip
    assert RunConfig.from_flat(flat) == config
    assert flat["encoder.sampler"] == ("released" if profile == "reference" else "exact")
    with pytest.raises(ValueError, match=r"Unknown path 'task\.dim'"):
        config.with_values({"task.dim": 10})


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
