"""`launch/train.py`: overrides, progress, resuming after a kill, refusals."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from launch.testbed.processes import stop_when
from launch.train import main
from launch.training.requests import TrainRequest
from launch.training.run_results import results_of
from launch.training.single_run import _config
from pcl.config import user_files
from pcl.config.run_config import RunConfig
from tests.support.commands import called
from tests.support.fork_server import forked
from tests.support.services import assert_refused
from tests.support.user_parts import ENCODER, LOSS, TASK, written

ROOT = Path(__file__).parents[2]
FAST = ["task.largest_cosine=0.9", "task.dim=4", "task.dim_x=3", "encoder.dim=4"]


def command(*arguments: str) -> list[str]:
    sets = [part for setting in FAST for part in ("--set", setting)]
    kind = ("--profile", "paper", "--scale", "smoke")
    return [sys.executable, "launch/train.py", *kind, "--device", "cpu", *sets, *arguments]


def train(*arguments: str) -> subprocess.CompletedProcess[str]:
    return called("launch/train.py", main, *command(*arguments)[2:])


def test_overrides_progress_and_results(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run.pt"
    result = train("--set", "loss.n_samples=16", "--seed", "4", "--seed", "5", "--checkpoint", str(checkpoint))
    assert result.returncode == 0, result.stderr
    assert "ETA" in result.stdout
    assert "seed 5:" in result.stdout
    assert "of 2 seeds: loss" in result.stdout
    content = json.loads(results_of(checkpoint).read_text())
    assert content["config"]["loss.n_samples"] == 16
    assert set(content["by_seed"]) == {"4", "5"}
    again = train("--set", "loss.n_samples=16", "--seed", "4", "--seed", "5", "--checkpoint", str(checkpoint))
    assert "already finished" in again.stdout


def test_a_whole_configuration_from_a_file(tmp_path: Path) -> None:
    """What a study's best.yaml is for."""
    config = RunConfig.of(dict(setting.split("=") for setting in FAST), profile="paper", scale="smoke")
    file = tmp_path / "best.yaml"
    file.write_text(yaml.safe_dump(config.flat()))
    base = ("launch/train.py", main, "--config", str(file))
    shown = called(*base, "--show-config")
    assert json.loads(shown.stdout) == config.flat()
    shown = called(*base, "--set", "loss.n_samples=7", "--show-config")
    assert json.loads(shown.stdout) == config.with_values({"loss.n_samples": 7}).flat()
    for bad, told in ((["--scale", "quick"], "leave out"), (["--config", "README.md"], "must be a YAML file")):
        refused = called(*base, *bad)
        assert refused.returncode == 2
        assert told in refused.stderr


def untimed(path: Path) -> dict[str, object]:
    by_seed = json.loads(path.read_text())["by_seed"]["4"]
    return {key: value for key, value in by_seed.items() if not key.startswith("time/")}


LENGTH = ("--set", "training.n_batches=120", "--set", "training.eval_every=20", "--seed", "4")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Results of a run that nobody stops."""
    checkpoint = tmp_path_factory.mktemp("undisturbed") / "whole.pt"
    whole = train(*LENGTH, "--checkpoint", str(checkpoint))
    assert whole.returncode == 0, whole.stderr
    return untimed(checkpoint.with_name("whole.pt.json"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_and_restarted_it_goes_on(
    how: signal.Signals, undisturbed: dict[str, object], tmp_path: Path
) -> None:  # fmt: skip
    """Killed after its first checkpoint, it ends where an undisturbed run ends."""
    words = command(*LENGTH, "--checkpoint", str(tmp_path / "cut.pt"))[1:]
    cut = forked(words, tmp_path / "cut.out", os.environ)
    # The results are written once the checkpoint is; stopped then, it has not ended, however fast it is.
    stop_when(lambda: [cut.process.pid], (tmp_path / "cut.pt.json").exists, "a checkpoint is there")
    cut.process.send_signal(how)
    cut.process.send_signal(signal.SIGCONT)
    cut.ended(130 if how is signal.SIGINT else -signal.SIGKILL)
    if how is signal.SIGINT:
        assert "the same command goes on from batch" in cut.errors
    resumed = train(*LENGTH, "--checkpoint", str(tmp_path / "cut.pt"))
    assert resumed.returncode == 0, resumed.stderr
    assert "going on from" in resumed.stdout
    assert untimed(tmp_path / "cut.pt.json") == undisturbed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--profile", "papr"), "Did you mean 'paper'"),
        (("--loss", "mcinfonce"), "must be one of"),
        (("--set", "loss.n_sample=1"), "Did you mean 'loss.n_samples'"),
        (("--set", "loss.n_samples"), "PATH=VALUE"),
        (("--set", "loss.n_samples=0"), "n_samples >= 1"),
        (("--set", "task.dim=1"), "task.dim >= 2"),
        (("--set", "task.kappa_min=50"), "kappa_min < task.kappa_max"),
        (("--device", "tpu"), "invalid choice: 'tpu'"),
        (("--seed", "-3"), "Seeds must be"),
        (("--config", "best.yaml", "--loss", "hib"), "leave out `--loss`, `--fidelity`, `--scale`."),
    ],
)
def test_bad_input_exits_with_2_and_one_sentence(
    arguments: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    words = command(*arguments, "--checkpoint", str(tmp_path / "run.pt"))[2:]
    assert_refused("launch/train.py", main, words, says, monkeypatch, capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("file", "says"), [("missing.yaml", "is not there."), ("tests", "is a folder.")])
def test_a_configuration_that_is_no_file(
    file: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = f"`--config` must name a file, but {file} {says}"
    assert_refused("launch/train.py", main, ["--config", file], told, monkeypatch, capsys)


def test_a_checkpoint_that_cannot_be_written_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    words = command("--checkpoint", str(tmp_path / "file" / "run.pt"))[2:]
    says = "`--checkpoint` must be in a folder that can be written to"
    assert_refused("launch/train.py", main, words, says, monkeypatch, capsys)


def test_a_checkpoint_of_another_config_is_kept(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run.pt"
    assert train("--checkpoint", str(checkpoint)).returncode == 0
    before = checkpoint.read_bytes()
    result = train("--set", "loss.n_samples=5", "--checkpoint", str(checkpoint))
    assert result.returncode == 2
    assert "another configuration: loss.n_samples is 4 there and 5 here" in result.stderr
    assert checkpoint.read_bytes() == before


def test_divergence_has_its_own_exit_code(tmp_path: Path) -> None:
    result = train("--set", "training.kappa_limit=10", "--checkpoint", str(tmp_path / "run.pt"))
    assert result.returncode == 1
    assert "runaway kappa" in result.stderr
    assert "Traceback" not in result.stderr


def test_show_config_and_calibrate(tmp_path: Path) -> None:
    shown = train("--show-config", "--profile", "reference")
    assert json.loads(shown.stdout)["loss.positive_weight"] == "one"
    result = train("--loss", "hib", "--calibrate", "--checkpoint", str(tmp_path / "run.pt"))
    assert not list(tmp_path.iterdir())
    assert "mean loss" in result.stdout
    assert "optimum" in result.stdout


def test_parts_of_users_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A loss, an encoder and a task of files outside of the package train, go on, and come from a best.yaml."""
    place, checkpoint = ("--checkpoint", str(tmp_path / "run.pt")), tmp_path / "run.pt"
    ours = (
        "--loss",
        written(tmp_path, LOSS),
        "--encoder",
        written(tmp_path, ENCODER),
        "--task",
        written(tmp_path, TASK),
    )
    result = train(*ours, *place)
    assert result.returncode == 0, result.stderr
    content = json.loads(results_of(checkpoint).read_text())
    assert content["config"]["loss_name"].startswith(f"{tmp_path}/hinge_loss.py:Hinge#")
    assert content["by_seed"]["4"]["eval/share"] == 0.25
    assert "already finished" in train(*ours, *place).stdout
    elsewhere = tmp_path / "moved"
    elsewhere.mkdir()
    moved = ("--loss", written(elsewhere, LOSS), *ours[2:])
    assert "already finished" in train(*moved, *place).stdout
    edited = written(elsewhere, LOSS, ("clamp(min=0)", "clamp(min=-2)"))
    refused = train("--loss", edited, *ours[2:], *place)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "loss_name is" in refused.stderr
    best = tmp_path / "best.yaml"
    best.write_text(yaml.safe_dump(content["config"]))
    monkeypatch.setattr(user_files, "_named", {})  # as in a new process
    words = ["--config", str(best), "--show-config"]
    assert_refused("train.py", main, words, "which was not named here", monkeypatch, capsys)
    monkeypatch.setenv(user_files.VARIABLE, ":".join(name.rpartition(":")[0] for name in ours[1::2]))
    assert json.loads(called("launch/train.py", main, *words).stdout) == content["config"]


@pytest.mark.parametrize(("device", "scale"), [("cuda", "paper"), ("cpu", "quick")])
def test_without_a_scale_the_hardware_decides(device: str, scale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launch.training.single_run.chosen_device", lambda asked: asked)
    assert _config(TrainRequest(device=device)).scale.value == scale
    assert _config(TrainRequest(device=device, scale="smoke")).scale.value == "smoke"
    assert _config(TrainRequest(device=device, calibrate=True)).scale.value == "paper"
