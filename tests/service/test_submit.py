"""Commands sent to a cluster: real jobs on a real Ray, with a token, and what is refused before anything is sent."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from launch.shared.job_package import commands, parcel
from launch.submit import main
from launch.testbed.processes import DEADLINE_S
from launch.train import main as train
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.provenance import commit
from tests.support.browser import CHROMIUM, browser
from tests.support.clusters import Cluster, cluster
from tests.support.commands import called
from tests.support.services import (
    LONG,
    ONE_WORKER,
    Records,
    alone,
    assert_refused,
    check_undisturbed,
    free_port,
    go_on,
    wait_for,
)

EXPECTED_SECONDS = 110


@pytest.fixture(scope="module")
def ray() -> Iterator[Cluster]:
    with cluster(n_cpus=2, has_dashboard=True) as found:
        yield found


def submitted(ray: Cluster, *arguments: str | Path, code: int = 0) -> str:
    """What submit.py says of its own accord; its errors, where there are any, are one sentence."""
    grid = ray.submit(*arguments, code=code)
    assert ray.token not in grid.said + grid.errors
    assert len(grid.errors.splitlines()) == (code == 2)
    return grid.said + grid.errors


def test_a_study_runs_as_a_job_that_can_be_stopped_and_resumed(ray: Cluster) -> None:
    """With a space of the user's own, which travels; nothing of the checkout is on the cluster.

    Its workers are held while it is asked about: however slow the questions are, it has not ended.
    """
    space, folder = (
        ray.place.space("long", {"grid": {"loss.n_samples": [2, 4]}}, LONG),
        ray.place.path / "shared folder",
    )
    found, job = StudyFolder(folder / "runs" / "s"), ["--folder", folder, "--name", "first"]
    study = ["--", "launch/grid.py", "--space", space, "--scale", "smoke", "--name", "s", *ONE_WORKER]
    said = submitted(ray, *job, "--detach", *study)
    assert f"--address {ray.url} --stop first" in said

    following = ray.begin("launch/submit.py", "--address", ray.url, "--logs", "first", "--wait")
    workers = ray.place.hold_when(lambda: sum(len(trial.rows()) for trial in found.trials()) >= 6, "6 reports")
    wait_for(lambda: "stage 1 of 1" in following.said, "the log is shown")
    following.process.send_signal(signal.SIGINT)
    following.ended(130)
    assert "the job first goes on" in following.errors

    assert "first: RUNNING" in submitted(ray, "--status", "first")
    assert "first  " in submitted(ray, "--list")
    assert "There is a job 'first' already" in submitted(ray, *job, *study, code=2)
    check_rays_dashboard_lists_it(ray, "first")
    stopping = ray.begin("launch/submit.py", "--address", ray.url, "--stop", "first")
    (log,) = ray.place.path.glob("ray/session_latest/logs/job-driver-first.log")
    wait_for(lambda: "stopping: " in log.read_text(), "the job is asked to stop")
    go_on(workers)
    assert "first: STOPPED" in stopping.ended().said
    assert "first: STOPPED" in submitted(ray, "--status", "first", code=1)
    assert Records(folder / "runs", "s").parent().info.status == "KILLED"  # as by Ctrl-C, recorded
    assert not all(trial.result() for trial in found.trials())

    # The space's file was the first job's: it is taken from the study's folder.
    going_on = ["--resume", "s", "--storage", folder / "runs", "--address", "ray://127.0.0.1:10001", *ONE_WORKER]
    second = ray.begin("launch/grid.py", *going_on, RAY_API_SERVER_ADDRESS=ray.url).ended()
    sent = re.search(rf"sent: (\S+) to {ray.url}\n(.|\n)*\1: SUCCEEDED", second.said)
    assert sent
    assert "2/2" in second.said
    assert "2/2" in submitted(ray, "--logs", sent[1])
    records = check_undisturbed(found, alone(space), folder / "runs")
    assert records.parent().data.tags["pcl.commit"] == commit()  # the job has no history to read it from
    assert (found.path / "space.py").read_text() == space.read_text()


def test_a_command_that_fails_fails_its_job_and_says_why(ray: Cluster) -> None:
    bad = ["launch/grid.py", "--space", "toy_elk", "--set", "loss.kappa_po=3", "--scale", "smoke"]
    said = submitted(ray, "--folder", ray.place.path / "none", "--name", "failing", "--wait", "--", *bad, code=1)
    assert "Did you mean 'loss.kappa_pos'?" in said
    assert "failing: FAILED" in said


def check_rays_dashboard_lists_it(ray: Cluster, name: str) -> None:
    if CHROMIUM is None:
        return
    with browser() as tab:
        tab.call("Network.setExtraHTTPHeaders", headers={"Authorization": f"Bearer {ray.token}"})  # a user pastes it
        tab.open(f"{ray.url}/#/jobs")
        told = [f"[...row.cells].some(cell => cell.innerText.trim() === {name!r})"]
        told += [f"row.innerText.includes({text!r})" for text in ("launch/grid.py --space ", "RUNNING")]
        tab.wait(f"[...document.querySelectorAll('tr')].some(row => {' && '.join(told)})")


def test_strangers_are_refused(ray: Cluster) -> None:
    assert "There is no job 'nobody'" in submitted(ray, "--status", "nobody", code=2)
    assert "There is no job 'nobody'" in submitted(ray, "--logs", "nobody", "--wait", code=2)
    stranger = Cluster(ray.place, port=ray.port, dashboard=ray.dashboard)
    assert "wants a token" in submitted(stranger, "--list", code=2)


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
