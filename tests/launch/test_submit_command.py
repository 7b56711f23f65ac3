"""`launch/submit.py`: what is sent to a cluster, and what is refused before anything is sent."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from launch.shared.job_package import commands, parcel
from launch.submit import main
from launch.testbed.processes import DEADLINE_S
from launch.train import main as train
from tests.support.commands import called
from tests.support.services import (
    assert_refused,
    free_port,
)

GRID_COMMAND = ["--", "launch/grid.py", "--space", "toy_elk"]
BAD_INPUT = {
    "nothing": ([], "A command must be given after `--`"),
    "not ours": (["--folder", "/x", "--", "launch/shared/x.py"], "must be one of launch/ablate.py, launch/apply.py"),
    "elsewhere": (["--folder", "/x", "--", "/tmp/grid.py"], "but got '/tmp/grid.py'"),
    "itself": (["--folder", "/x", "--", "launch/submit.py", "--list"], "but got 'launch/submit.py'"),
    "no folder": (GRID_COMMAND, "A job's own folder vanishes with it"),
    "relative folder": (["--folder", "runs", *GRID_COMMAND], "must be absolute paths on the cluster, but got 'runs'"),
    "relative storage": ([*GRID_COMMAND, "--storage=runs"], "must be absolute paths on the cluster, but got 'runs'"),
    "relative data": ([*GRID_COMMAND, "--storage", "/x", "--data", "my/images"], "`--data` must be an absolute path"),
    "missing space": (["--folder", "/x", "--", "launch/grid.py", "--space", "no/x.py"], "there is no no/x.py"),
    "missing config": (["--folder", "/x", "--", "launch/train.py", "--config=x.yaml"], "there is no x.yaml"),
    "password": ([*GRID_COMMAND, "--storage", "/x", "--tracking-uri", "http://me:secret@host"], "with a password"),
    "secret": ([*GRID_COMMAND, "--storage", "abfs://a@b/c?client_secret=d"], "must be without passwords and keys"),
    "bad name": (["--folder", "/x", "--name", "a b", *GRID_COMMAND], "`--name` must be letters"),
    "no cluster": (["--address", "http://127.0.0.1:{port}", "--list"], "No Ray dashboard can be reached at"),
    "no host": (["--address", "http://no-such-host.invalid:8265", "--status", "x"], "No Ray dashboard can be reached"),
    "odd address": (["--address", "ray://127.0.0.1:10001", "--list"], "`--address` must be a dashboard's"),
    "address with password": (["--address", "http://me:secret@127.0.0.1:8265", "--list"], "must be a dashboard's"),
    "two questions": (["--status", "a", "--stop", "b"], "not several"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_in_one_sentence(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = BAD_INPUT[case]
    words = [word.format(port=free_port()) for word in arguments]
    told = assert_refused("launch/submit.py", main, words, message, monkeypatch, capsys)
    assert "secret" not in told


def test_commands_are_the_launch_files() -> None:
    assert {"grid", "train", "data", "look", "pretrain", "bench"} <= set(commands())
    assert not {"submit", "parcel", "command", "weights"} & set(commands())


def test_a_parcel_starts_where_results_stay(tmp_path: Path) -> None:
    """What is sent is run as a node's shell would run it."""
    config, folder = tmp_path / "my run.yaml", tmp_path / "on the cluster"
    shown = called("launch/train.py", train, "--show-config")
    assert shown.returncode == 0, shown.stderr
    config.write_text(shown.stdout)
    sent = parcel(["python", "launch/train.py", f"--config={config}", "--show-config"], str(folder), "http://mlflow")
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    sent.pack(unpacked)
    names = {path.name for path in unpacked.iterdir()}
    assert names == {
        "pcl", "search_spaces", "launch", "dashboards", "given", "pyproject.toml", "requirements.lock", "COMMIT"
    }  # fmt: skip
    assert not list(unpacked.rglob("__pycache__"))
    again = subprocess.run(
        sent.command(sys.executable), shell=True, cwd=unpacked, capture_output=True, text=True, timeout=DEADLINE_S,
        check=False,
    )  # fmt: skip
    assert again.stdout == shown.stdout, again.stderr


@pytest.mark.parametrize("name", ["grid", "ablate", "reproduce"])
def test_commands_that_are_told_the_cluster_take_its_address(name: str) -> None:
    assert parcel([f"launch/{name}.py"], "/x", "http://m").words == ("--address", "auto", "--tracking-uri", "http://m")
    shown = called(f"launch/{name}.py", import_module(f"launch.{name}").main, "--help")
    assert shown.returncode == 0
    assert "--address" in shown.stdout
    assert "--tracking-uri" in shown.stdout


def test_a_study_is_sent_with_clusters_address_and_the_tracking_server() -> None:
    sent = parcel(["launch/grid.py", "--space", "toy_elk"], "/shared/pcl", "http://mlflow:5000")
    assert sent.words == ("--space", "toy_elk", "--address", "auto", "--tracking-uri", "http://mlflow:5000")
    assert "cd /shared/pcl && " in sent.command("python")
    assert 'exec "$python" -m launch.grid --space toy_elk' in sent.command("python")
    given = ["launch/grid.py", "--space", "toy_elk", "--address", "h:1"]
    given += ["--tracking-uri", "http://b", "--storage", "/s"]
    assert parcel(given, None, "http://a").words == tuple(given[1:])
    assert parcel(given, None, "").folder == "/s"
    assert parcel(["launch/grid.py", "--list"], None, "").folder == ""
