"""Commands sent to a cluster: real jobs on a real Ray, with a token."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.provenance import commit
from tests.support.browser import CHROMIUM, browser
from tests.support.clusters import Cluster, cluster
from tests.support.services import LONG, ONE_WORKER, Records, alone, check_undisturbed, go_on, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jobs")]  # one cluster for all

EXPECTED_SECONDS = 140


@pytest.fixture(scope="module")
def ray() -> Iterator[Cluster]:
    with cluster(n_cpus=2, has_dashboard=True) as found:
        yield found


def submitted(ray: Cluster, *arguments: str | Path, code: int = 0) -> str:
    """Return all that submit.py prints; a refusal is one sentence."""
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
