"""A user's own loss, encoder and task, each a file outside of the package: named, recorded, moved, edited, gone."""

from pathlib import Path

import pytest

from pcl.config import user_files
from pcl.config.experiments import EXPERIMENTS, experiment_of
from pcl.config.run_config import RunConfig
from pcl.encoders import MlpEncoder
from pcl.studies.space.search_space import load_space
from pcl.studies.space.trial import Trial
from pcl.training.run import Run
from tests.support.smoke import FAST
from tests.support.user_parts import ENCODER, LOSS, TASK, USER_FILES, written


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_files, "_named", {})
    monkeypatch.delenv(user_files.VARIABLE, raising=False)


def of(**names: str) -> RunConfig:
    small = {path: value for path, value in FAST.items() if names.get("task") != "images"}
    return RunConfig.of({**small, "task.smoothing": "none"}, scale="smoke", **names)


@pytest.mark.parametrize(
    ("names", "setting", "is_fused"),
    [
        ({"loss": LOSS}, ("loss.margin", 1.0), True),
        ({"encoder": ENCODER}, ("encoder.start", "small"), False),
        ({"task": TASK}, ("task.share", 0.25), False),
        ({"loss": LOSS, "encoder": ENCODER, "task": TASK}, ("task.n_eval", 64), False),
    ],
)
def test_users_parts_train_and_come_back(
    names: dict[str, str], setting: tuple[str, object], is_fused: bool, tmp_path: Path
) -> None:
    config = of(**names)
    flat = config.flat()
    assert flat[setting[0]] == setting[1]
    assert RunConfig.from_flat(flat) == config
    assert config.experiment.is_fused(config.encoder) is is_fused
    run = Run(config, (4, 5))
    first, second = run
    run.save(tmp_path / "run.pt")
    assert second.by_seed[4]["train/loss"] != first.by_seed[4]["train/loss"]
    assert ("eval/share" in second.by_seed[5]) == ("task" in names)
    half = Run(config, (4, 5))
    next(iter(half))
    half.save(tmp_path / "half.pt")
    (last,) = Run.restore(tmp_path / "half.pt")
    assert [without_times(m) for m in last.by_seed.values()] == [without_times(m) for m in second.by_seed.values()]


def without_times(metrics: dict[str, float]) -> dict[str, float]:
    return {key: value for key, value in metrics.items() if not key.startswith("time/")}


def test_a_part_is_what_its_file_has_wherever_it_lies(tmp_path: Path) -> None:
    config = of(loss=LOSS)
    moved = of(loss=written(tmp_path, LOSS))
    assert moved.loss_name != config.loss_name
    assert moved.fingerprint() == config.fingerprint()
    assert Trial(moved.flat(), (1,), "s").key == Trial(config.flat(), (1,), "s").key
    edited = of(loss=written(tmp_path, LOSS, ("clamp(min=0)", "clamp(min=-1)")))
    assert edited.fingerprint() != config.fingerprint()
    assert Trial(edited.flat(), (1,), "s").key != Trial(config.flat(), (1,), "s").key
    assert config.label == "toy-Hinge-paper-smoke"


def test_a_record_finds_a_file_that_was_moved(tmp_path: Path) -> None:
    flat = of(loss=LOSS).flat()
    user_files._named.clear()
    here = of(loss=written(tmp_path, LOSS))
    assert RunConfig.from_flat(flat) == here


def test_a_record_alone_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = written(tmp_path, LOSS, ("import torch\n", "import torch\nraise SystemExit\n"))
    full = f"{name}#{user_files._digest((tmp_path / 'hinge_loss.py').read_bytes())}"
    flat = {**of().flat(), "loss_name": full}
    with pytest.raises(ValueError, match=r"was not named here; if you trust it, set PCL_USER_FILES=/"):
        RunConfig.from_flat(flat)
    with pytest.raises(ValueError, match="has changed since"):
        RunConfig.from_flat({**flat, "loss_name": name})  # without a digest nobody knows what it was
    monkeypatch.setenv(user_files.VARIABLE, str(tmp_path / "hinge_loss.py"))
    with pytest.raises(ValueError, match=r"hinge_loss.py cannot be read: line \d+: SystemExit"):
        RunConfig.from_flat(flat)


def test_a_trusted_record_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    config = of(loss=LOSS)
    user_files._named.clear()
    monkeypatch.setenv(user_files.VARIABLE, str(USER_FILES / "hinge_loss.py"))
    assert RunConfig.from_flat(config.flat()) == config


def test_what_is_gone_or_has_changed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = written(tmp_path, LOSS, ("margin: float = 1.0", "margin: float = 1.5"))  # not loaded yet
    file = tmp_path / "hinge_loss.py"
    full = user_files.named(name)
    content = file.read_text()
    file.write_text(content.replace("class Hinge(", "class Other("))
    with pytest.raises(ValueError, match=rf"The file {file} has changed since this configuration was made"):
        RunConfig.from_flat({**of().flat(), "loss_name": full})
    with pytest.raises(ValueError, match=rf"The file {file} must define `Hinge`, but does not."):
        of(loss=name)
    file.unlink()
    with pytest.raises(ValueError, match=rf"The file {file} cannot be read: No such file"):
        RunConfig.from_flat({**of().flat(), "loss_name": full})
    with pytest.raises(ValueError, match="No such file"):
        of(loss=name)


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("loss", "X = 3", "`loss` must name a class derived from `Loss`, but .* is of the type int"),
        ("encoder", "class X: ...", "`encoder` must name a class derived from `Encoder`, but .* is the class `X`"),
        ("task", "from pcl.tasks import ToyTask as X", "`task` must name an `Experiment`, but .* the class `ToyTask`"),
        ("loss", "from pcl.losses import Loss\nclass X(Loss): ...", "frozen dataclass `Config` inside it"),
        ("loss", "from pcl.losses import HIB\nclass X(HIB): ...", "`X` must have a `Config` of its own"),
        ("encoder", "from pcl.encoders import MlpEncoder\nclass X(MlpEncoder): ...", "must have a `Config` of its own"),
        (
            "loss",
            "from dataclasses import dataclass\nfrom pcl.losses import Loss, LossConfig\nclass X(Loss):\n"
            "    @dataclass(frozen=True)\n    class Config(LossConfig):\n        sizes: tuple[int, ...] = ()\n",
            "`loss.sizes` must be text, a number",
        ),
        (
            "loss",
            "from dataclasses import dataclass\nfrom pcl.losses import Loss, LossConfig\nclass X(Loss):\n"
            "    @dataclass(frozen=True)\n    class Config(LossConfig):\n        size: int\n",
            "`loss.size` must have a default",
        ),
        ("loss", "1 / 0", "x.py cannot be read: line 1: ZeroDivisionError"),
        ("loss", "x = (", "x.py cannot be read: line 1: SyntaxError"),
    ],
)
def test_what_is_no_part_is_refused(kind: str, content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(content + "\n")
    with pytest.raises(ValueError, match=message):
        of(**{kind: f"{tmp_path}/x.py:X"})


def test_an_encoder_must_take_the_tasks_inputs() -> None:
    with pytest.raises(ValueError, match=r"must be one of classifier, FILE\.py:CLASS, but got 'resnet'"):
        of(encoder="resnet")
    with pytest.raises(ValueError, match="takes vectors, but the task's inputs are"):
        RunConfig(
            task=EXPERIMENTS["images"].task.Config(), encoder=MlpEncoder.Config(), task_name="images",
        )  # fmt: skip


def test_a_space_may_define_its_own_loss(tmp_path: Path) -> None:
    """One file is all that has to travel; a copy of it elsewhere is the same space."""
    loss = Path(LOSS.rpartition(":")[0]).read_text()
    space = (
        "from pcl.studies.space import SearchSpace, Stage\n"
        "SPACE = SearchSpace('own', f'{__file__}:Hinge', (Stage('grid', {'loss.margin': [0.5, 1.0]}),))\n"
    )
    (tmp_path / "copies").mkdir()
    files = [tmp_path / "own.py", tmp_path / "copies" / "space.py"]
    found = []
    for file in files:
        file.write_text(loss + space)
        found.append(load_space(str(file)))
    assert found[0].fingerprint() == found[1].fingerprint()
    keys = [[Trial(cell.config.flat(), (1,), "grid").key for cell in space.cells(0)] for space in found]
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == 2
    files[0].write_text((loss + space).replace("clamp(min=0)", "clamp(min=1)"))
    assert load_space(str(files[0])).fingerprint() != found[0].fingerprint()


def test_a_relative_path_is_of_the_space_and_else_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("space", "elsewhere"):
        (tmp_path / name).mkdir()
    space = tmp_path / "space" / "own.py"
    space.write_text(
        "from pcl.studies.space import SearchSpace, Stage\n"
        "SPACE = SearchSpace('own', 'hinge_loss.py:Hinge', (Stage('grid', {'loss.margin': [0.5, 1.0]}),))\n"
    )
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="cannot be read"):
        load_space(str(space))
    for name in ("elsewhere", "space"):
        loss = written(tmp_path / name, LOSS)
        assert load_space(str(space)).loss.startswith(f"{loss}#")


def test_experiments_are_complete() -> None:
    for name in ("toy", "images", user_files.named(TASK)):
        experiment = experiment_of(name)
        assert experiment.task.selects in ("", *experiment.metrics)
        assert all(metric.startswith((f"{experiment.task.split}/", "train/")) for metric in experiment.metrics)
