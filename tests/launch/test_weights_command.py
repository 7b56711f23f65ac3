"""`launch/pretrain.py`, and `--weights` of `launch/train.py` and `launch/grid.py`."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torchvision.models.resnet import BasicBlock, ResNet

from launch import pretrain, train
from launch.grid import _parser as grid_parser
from launch.grid import request_of as grid_request
from launch.shared.backbone_weights import Missing, check_weights, chosen_weights, pretrained
from launch.studies.asked_study import Asked
from launch.studies.grid_study import asked_study
from launch.studies.images import WEIGHTS
from pcl.data.embedded import embedded
from pcl.data.images import ImageSet, save
from pcl.data.weights import load_weights, weights_folder
from pcl.encoders import ResNetEncoder
from pcl.studies.ledger.opened_study import opened
from pcl.studies.space.search_space import SearchSpace
from pcl.training.pretraining import Pretraining, Recipe
from tests.support.commands import called


@pytest.fixture(scope="module")
def data() -> ImageSet:
    drawn = embedded(n=50, n_train=40).images
    return replace(drawn, name="few")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: ImageSet) -> Path:
    """An empty data folder, and a set of few images in a file."""
    monkeypatch.setenv("PCL_DATA", str(tmp_path / "data"))
    save(data, tmp_path / "few.pt")
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, main: object, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["command", *arguments])
    main()  # type: ignore[operator]


def test_pretraining_keeps_weights_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = ("--data", str(folder / "few.pt"), "--width", "2", "--epochs", "1", "--device", "cpu")
    call(monkeypatch, pretrain.main, *kind, "--batch-size", "20", "--lr", "0.01", "--seed", "3")
    (kept,) = weights_folder().iterdir()
    weights = load_weights(kept)
    assert (weights.data, weights.width, weights.epochs, weights.batch_size) == ("few", 2, 1, 20)
    assert (weights.lr, weights.seed) == (0.01, 3)
    told = capsys.readouterr().out
    assert "few: 40 training images, width 2, 1 epochs" in told
    assert f"{kept}: accuracy {weights.accuracy:.2%}" in told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--data", "FOLDER"), "training images apart from the folds, which 'own' lacks"),
        (("--data", "nowhere"), "there is no such folder or file"),
        (("--data", "few.pt", "--lr", "0"), "`0 < lr < inf` must hold, but got 0."),
        (("--data", "few.pt", "--output", "few.pt"), "`--output` must name a folder"),
    ],
)
def test_bad_input_to_pretraining(
    arguments: tuple[str, ...], says: str, folder: Path, monkeypatch: pytest.MonkeyPatch, data: ImageSet
) -> None:
    none = data.train_images[:0], data.train_labels[:0]
    save(replace(data, name="own", train_images=none[0], train_labels=none[1]), folder / "own.pt")
    places = {"FOLDER": str(folder / "own.pt"), "few.pt": str(folder / "few.pt")}
    with pytest.raises(ValueError, match=says):
        call(monkeypatch, pretrain.main, *(places.get(argument, argument) for argument in arguments))
    assert not weights_folder().exists()


def test_one_sentence_and_exit_code_2(folder: Path) -> None:
    for program, main, words in (
        ("launch/pretrain.py", pretrain.main, ["--data", "nowhere"]),
        ("launch/train.py", train.main, ["--weights", "none"]),
    ):
        result = called(program, main, *words)
        assert result.returncode == 2
        assert len(result.stderr.strip().splitlines()) == 1


def test_ctrl_c_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = iter(range(2))
    trained = Pretraining._pass

    def interrupted(self: Pretraining) -> torch.Tensor:
        if next(passes):  # the first epoch is over
            raise KeyboardInterrupt
        return trained(self)

    monkeypatch.setattr(Pretraining, "_pass", interrupted)
    kind = ("--data", str(folder / "few.pt"), "--width", "2", "--epochs", "9", "--device", "cpu")
    result = called("launch/pretrain.py", pretrain.main, *kind)
    assert result.returncode == 130
    assert "stopped" in result.stderr
    assert "Traceback" not in result.stderr
    assert not weights_folder().exists()


def test_what_auto_takes(folder: Path, data: ImageSet) -> None:
    assert chosen_weights("none", data, 2, "paper") == ""
    assert chosen_weights("auto", data, 2, "smoke") == ""
    without = replace(data, train_images=data.train_images[:0], train_labels=data.train_labels[:0])
    assert chosen_weights(None, without, 2, "paper") == ""
    missing = chosen_weights(None, data, 2, "quick")
    assert isinstance(missing, Missing)
    assert "24 epochs of the 40 training images of few" in str(missing)
    path = pretrained(data, Recipe(2, 1, 20), "cpu", weights_folder())
    assert chosen_weights("auto", data, 2, "quick") == path.name
    assert isinstance(chosen_weights("auto", data, 3, "paper"), Missing)


def test_a_users_file_is_kept_by_its_content(folder: Path, data: ImageSet) -> None:
    theirs = pretrained(data, Recipe(2, 1, 20), "cpu", folder / "theirs").rename(folder / "mine.bin")
    name = chosen_weights(str(theirs), data, 2, "smoke")
    assert name == load_weights(theirs).file_name
    assert (weights_folder() / str(name)).is_file()
    assert chosen_weights(str(name), data, 2, "quick") == name  # by its name from now on
    with pytest.raises(ValueError, match=r"`encoder\.width=8` needs weights"):
        chosen_weights(str(theirs), data, 8, "smoke")
    with pytest.raises(ValueError, match=r"must be auto, none or a file, here or in .*, but got 'nothing\.pt'"):
        chosen_weights("nothing.pt", data, 2, "smoke")


def test_a_plain_state_dict_is_taken_too(folder: Path, data: ImageSet) -> None:
    """By torchvision's names, as others publish theirs; what does not fit is named."""
    theirs = ResNet(BasicBlock, [2, 2, 2, 2])
    theirs.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
    torch.save(theirs.state_dict(), folder / "theirs.pth")
    name = str(chosen_weights(str(folder / "theirs.pth"), data, 64, "smoke"))
    assert name.startswith("resnet18_pooled-w64-theirs-")
    body = ResNetEncoder(ResNetEncoder.Config(width=64, weights=name), (0,)).eval().nets[0][0]
    theirs.fc = torch.nn.Identity()
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(body(images), theirs.eval()(images))
    for state, says in (
        (
            {"features.0.weight": torch.zeros(1)},
            r"other.pth must have the weights of a ResNet-18, but has no conv1.weight",
        ),
        ({"conv1.weight": torch.zeros(64, 3, 7, 7)}, r"conv1.weight is \(64, 3, 7, 7\) instead of \(64, 3, 3, 3\)"),
        ({"conv1.weight": torch.zeros(())}, r"conv1.weight is \(\) instead of"),
        ({**theirs.state_dict(), "layer1.2.conv1.weight": torch.zeros(1)}, "but also has layer1.2.conv1.weight"),
    ):
        torch.save(state, folder / "other.pth")
        with pytest.raises(ValueError, match=says):
            chosen_weights(str(folder / "other.pth"), data, 64, "smoke")


def test_train_starts_from_them(folder: Path, monkeypatch: pytest.MonkeyPatch, data: ImageSet) -> None:
    theirs = pretrained(data, Recipe(4, 1, 20), "cpu", folder / "theirs")
    kind = ("--task", "images", "--data", str(folder / "few.pt"), "--scale", "smoke", "--device", "cpu")
    call(monkeypatch, train.main, *kind, "--weights", str(theirs), "--checkpoint", str(folder / "run.pt"))
    config = json.loads((folder / "run.pt.json").read_text())["config"]
    assert config["encoder.weights"] == theirs.name
    assert config["task.data"] == str(folder / "few.pt")
    call(monkeypatch, train.main, *kind, "--checkpoint", str(folder / "scratch.pt"))
    assert json.loads((folder / "scratch.pt.json").read_text())["config"]["encoder.weights"] == ""
    name = f"encoder.weights={theirs}"  # also over the flag
    call(
        monkeypatch, train.main, *kind, "--set", name, "--weights", "none", "--checkpoint", str(folder / "set.pt")
    )  # fmt: skip
    assert json.loads((folder / "set.pt.json").read_text())["config"]["encoder.weights"] == theirs.name
    with pytest.raises(ValueError, match="`--weights` is for `--task images`"):
        call(monkeypatch, train.main, "--weights", "none")


def asked(folder: Path, *arguments: str) -> Asked[SearchSpace]:
    where = ("--storage", str(folder / "runs"), "--data", str(folder / "few.pt"))
    return asked_study(grid_request(grid_parser().parse_args([*where, *arguments])))


def test_a_study_records_its_weights(folder: Path, data: ImageSet, capsys: pytest.CaptureFixture[str]) -> None:
    space, width = ("--space", "cifar_mcinfonce"), ("--set", "encoder.width=2")
    assert asked(folder, *space, "--scale", "smoke").spec.overrides[WEIGHTS] == ""
    before = asked(folder, *space, *width, "--scale", "quick")
    assert before.images.missing is not None
    assert not weights_folder().exists()  # nothing is made by asking
    path = pretrained(data, Recipe(2, 1, 20), "cpu", weights_folder())
    after = asked(folder, *space, *width, "--scale", "quick", "--name", "mine")
    assert after.images.missing is None
    assert after.with_weights() == after
    assert after.spec.overrides[WEIGHTS] == path.name
    assert all(trial.config[WEIGHTS] == path.name for trial in after.spec.trials(after.declared, 0, {}))
    assert asked(folder, *space, *width, "--weights", "none").spec.overrides[WEIGHTS] == ""
    assert asked(folder, *space, *width, "--set", "encoder.weights=").spec.overrides[WEIGHTS] == ""
    with opened(after.folder, after.spec):
        pass
    storage = ("--storage", str(folder / "runs"))
    resumed = asked_study(grid_request(grid_parser().parse_args([*storage, "--resume", "mine"])))
    assert resumed.spec == after.spec
    with pytest.raises(ValueError, match="leave out --weights"):
        asked_study(grid_request(grid_parser().parse_args([*storage, "--resume", "mine", "--weights", "none"])))
    path.unlink()
    with pytest.raises(ValueError, match="that the study began with are gone"):
        asked_study(grid_request(grid_parser().parse_args([*storage, "--resume", "mine"])))


def test_what_is_missing_is_trained_once(folder: Path, data: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recipe, "suited", classmethod(lambda cls, data, width: cls(width, 1, 20)))
    space = ("--space", "cifar_mcinfonce", "--set", "encoder.width=2", "--scale", "quick")
    first = asked(folder, *space).with_weights()
    again = asked(folder, *space)
    assert again.images.missing is None
    assert first.spec.overrides == again.spec.overrides
    check_weights(str(first.spec.overrides[WEIGHTS]))


SPACE = """
from pcl.studies.space.search_space import Objective, SearchSpace, Stage
SPACE = SearchSpace("mine", "elk", (Stage("grid", {axes}),), {base}, Objective("val/crop_rank_corr"), task="images")
"""


def test_a_space_may_say_it_itself(folder: Path, data: ImageSet, capsys: pytest.CaptureFixture[str]) -> None:
    path = pretrained(data, Recipe(2, 1, 20), "cpu", weights_folder())
    file = folder / "space.py"

    def overrides(axes: dict[str, object], base: dict[str, object], *arguments: str) -> dict[str, object]:
        file.write_text(SPACE.format(axes=axes, base=base))
        return dict(asked(folder, "--space", str(file), "--scale", "paper", *arguments).spec.overrides)

    base: dict[str, object] = {"encoder.width": 2, WEIGHTS: path.name}
    assert overrides({"encoder.dim": (8, 16)}, base)[WEIGHTS] == path.name
    both = {WEIGHTS: ("", path.name)}
    assert WEIGHTS not in overrides(both, {"encoder.width": 2})
    with pytest.raises(ValueError, match="the space 'mine' varies them"):
        overrides(both, {"encoder.width": 2}, "--weights", "none")
    assert overrides({"encoder.width": (2, 4)}, {})[WEIGHTS] == ""
    assert "all networks start from scratch" in capsys.readouterr().out


def test_a_damaged_kept_file_is_set_aside_and_trained_again(
    folder: Path, data: ImageSet, capsys: pytest.CaptureFixture[str]
) -> None:
    path = pretrained(data, Recipe(2, 1, 20), "cpu", weights_folder())
    elsewhere = shutil.copy(path, folder / "mine.pt")
    content = torch.load(path, weights_only=True)
    content["accuracy"] = 1.0
    for damage in (lambda: torch.save(content, path), lambda: path.write_bytes(path.read_bytes()[:999])):
        damage()
        damaged = path.read_bytes()
        assert isinstance(chosen_weights("auto", data, 2, "quick"), Missing)
        (aside,) = weights_folder().glob("*.damaged-*")
        assert not path.exists()
        assert aside.read_bytes() == damaged
        assert aside.name in capsys.readouterr().err
        aside.unlink()
        assert pretrained(data, Recipe(2, 1, 20), "cpu", weights_folder()) == path
        assert chosen_weights("auto", data, 2, "quick") == path.name
    path.write_bytes(b"")
    assert chosen_weights(str(elsewhere), data, 2, "quick") == path.name  # the user's file is kept in its place
    assert load_weights(path).file_name == path.name
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="is damaged or has no weights"):
        check_weights(path.name)  # that a study began with: others would give other results
    assert path.exists()


def test_weights_of_another_version_are_not_called_damaged(folder: Path, data: ImageSet) -> None:
    path = pretrained(data, Recipe(2, 1, 20), "cpu", weights_folder())
    torch.save({**torch.load(path, weights_only=True), "format": 99}, path)
    with pytest.raises(ValueError, match="must be of format 2, but is of 99"):
        chosen_weights("auto", data, 2, "quick")
    assert path.exists()
