"""Clusters of several nodes, and the files that start them elsewhere, as far as they can be tried without a cloud."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from launch.grid import _parser as grid_parser
from launch.grid import main
from launch.shared.job_package import parcel
from launch.submit import _parser as submit_parser
from launch.testbed.processes import DEADLINE_S, parent_of, signal_all
from pcl.config.run_config import RunConfig
from pcl.studies.cluster import joining
from pcl.studies.execution import tune_adapter
from pcl.studies.execution.worker import Job
from pcl.studies.ledger.folders import Status, StudyFolder
from pcl.studies.ledger.opened_study import opened, space_of
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.space.trial import Trial
from tests.support.clusters import Cluster, cluster
from tests.support.services import BASE, GRID, ROOT, alone, best_of, check_records, on_disk, summary_of, wait_for

EXPECTED_SECONDS = 60
FILES = ROOT / "launch" / "cluster"


@pytest.fixture(scope="module")
def ray() -> Iterator[Cluster]:
    with cluster(n_nodes=2) as found:
        yield found


def test_a_study_joins_a_cluster_and_uses_all_nodes(ray: Cluster) -> None:
    """With the results of the same trials trained alone, to the bit; the cluster stays when the study ends."""
    space = ray.place.space("longer", GRID, {**BASE, "training.n_batches": 24, "training.eval_every": 8})
    study = ["--space", space, "--scale", "smoke", "--name", "s", "--storage", ray.place.storage]
    expected = alone(space)
    grid = ray.begin("launch/grid.py", *study, "--address", ray.address)
    wait_for(ray.workers, "a node has a trial")
    first = ray.workers()
    signal_all(first, signal.SIGSTOP)  # alone, it might end all of them before the other node's worker has started
    wait_for(lambda: len({parent_of(pid) for pid in ray.workers()}) == 2, "both nodes have a trial")
    signal_all(first, signal.SIGCONT)
    grid.ended()
    assert "each on 1 CPU, 2 at once" in grid.said
    found = ray.place.study("s")
    assert on_disk(found) == expected
    assert summary_of(found)["best"]["key"] == best_of(expected)
    results = [trial.result() for trial in found.trials()]
    assert all(result is not None and result.status is Status.FINISHED for result in results)
    assert len({result.node for result in results if result is not None}) == 2
    check_records(found, ray.place.storage)
    assert not list(ray.place.storage.glob(".probe*"))


def test_a_cluster_with_another_token_is_refused(ray: Cluster) -> None:
    study = ["launch/grid.py", "--space", "toy_elk", "--storage", ray.place.path / "none"]
    stranger = Cluster(ray.place, port=ray.port, dashboard=ray.dashboard)
    grid = stranger.run(*study, "--scale", "smoke", "--address", ray.address, code=2)
    assert f"The Ray cluster at {ray.address} refuses this token; RAY_AUTH_TOKEN or ~/.ray/auth_token" in grid.errors
    assert len(grid.errors.splitlines()) == 1  # nothing of Ray's own
    assert stranger.token not in grid.errors
    assert not (ray.place.path / "none").exists()


def test_slurm(ray: Cluster, tmp_path: Path) -> None:
    """Slurm's commands are stand-ins, and `srun` starts no nodes: those of a cluster that is there are joined."""
    bin = tmp_path / "bin"
    bin.mkdir()
    stand_ins = {
        "scontrol": "echo one; echo two",
        "srun": 'stat -c %a "$RAY_AUTH_TOKEN_PATH" >> "$SAID.modes"; echo "$@" >> "$SAID"; '
        'case "$*" in *hostname*) echo 127.0.0.1;; esac',
    }
    for name, script in stand_ins.items():
        (bin / name).write_text(f"#!/bin/bash\n{script}\n")
        (bin / name).chmod(0o755)
    storage, said = tmp_path / "runs", tmp_path / "said"
    slurm = {
        "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "nodes", "SLURM_CPUS_PER_TASK": "3", "SLURM_GPUS_ON_NODE": "1",
        "RAY_PORT": str(ray.port), "STORAGE": str(storage), "PYTHON": sys.executable, "SAID": str(said),
    }  # fmt: skip
    # The token is the script's own; the cluster's comes first.
    environment = {**ray.environment, **slurm, "PATH": f"{bin}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    command = [FILES / "slurm.sh", "--space", ray.place.space("short", GRID, BASE), "--scale", "smoke", "--name", "s"]
    done = subprocess.run(
        [*command, "--plan"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "each on 1 CPU, 2 at once" in done.stdout  # the cluster's
    assert not list(storage.glob(".ray-token*"))
    assert set(tmp_path.joinpath("said.modes").read_text().split()) == {"600"}  # while nodes needed it
    started = [line for line in said.read_text().splitlines() if " start " in line]
    head, node = sorted(started, key=lambda line: "--head" not in line)
    assert "--nodelist=one" in head
    assert f"--head --node-ip-address=127.0.0.1 --port={ray.port}" in head
    assert "--nodelist=two" in node
    assert node.endswith(f"--address=127.0.0.1:{ray.port} --num-cpus=3 --num-gpus=1")

    # Of a study that has begun, the same command goes on; here only its last step is looked at.
    (storage / "s").mkdir()
    (storage / "s" / "study.json").touch()
    python = bin / "python"
    python.write_text('#!/bin/bash\necho "$@"\n')
    python.chmod(0o755)
    environment |= {"PYTHON": str(python), "MLFLOW_TRACKING_URI": "http://mlflow:5000"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    address = f"--address 127.0.0.1:{ray.port} --storage {storage} --tracking-uri http://mlflow:5000"
    assert done.stdout.splitlines()[-1] == f"launch/grid.py --resume s {address}"


@pytest.mark.slow
def test_storage_that_a_node_does_not_share_is_refused(ray: Cluster) -> None:
    """One node, of which the tests before know nothing, sees another disk under the same path."""
    if os.geteuid() or shutil.which("unshare") is None:
        pytest.skip("a disk of a node's own is a mount, which needs root")
    private = ray.place.path / "private"
    private.mkdir()
    ray.add_node("apart", before=f"mount -t tmpfs tmpfs {private}")
    space = ray.place.space("short", GRID, BASE)
    study = ["--space", space, "--scale", "smoke", "--name", "s", "--address", "auto"]
    grid = ray.run("launch/grid.py", *study, "--storage", private / "runs", code=2)
    assert "`storage` must be a folder on a file system that all nodes of the cluster share" in grid.errors
    assert len(grid.errors.splitlines()) == 1
    assert not list(private.iterdir())


def test_slurm_script_is_bash() -> None:
    subprocess.run(["bash", "-n", FILES / "slurm.sh"], check=True)
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    subprocess.run(["shellcheck", FILES / "slurm.sh"], check=True)


def test_the_cloud_cluster_is_what_ray_takes() -> None:
    config = yaml.safe_load((FILES / "aws.yaml").read_text())
    validate_config(prepare_config(config))
    assert config["head_node_type"] in config["available_node_types"]
    gpu = config["available_node_types"]["gpu"]
    assert 1 <= gpu["min_workers"] <= gpu["max_workers"] <= config["max_workers"]
    for commands in (config["head_start_ray_commands"], config["worker_start_ray_commands"]):
        assert any("RAY_AUTH_MODE=token" in command for command in commands)
        for command in commands:
            subprocess.run(["bash", "-n", "-c", command], check=True)
    (start,) = [command for command in config["head_start_ray_commands"] if "--head" in command]
    assert "MLFLOW_TRACKING_URI=http" in start
    assert "--dashboard-host=127.0.0.1" in start


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FILES / name).read_text()))


def test_kuberay_clusters_have_gpus_a_token_and_shared_storage() -> None:
    claim, standing = documents("kuberay-cluster.yaml")
    (job,) = documents("kuberay-job.yaml")
    assert claim["kind"] == "PersistentVolumeClaim"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert (standing["apiVersion"], standing["kind"]) == ("ray.io/v1", "RayCluster")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert job["spec"]["shutdownAfterJobFinishes"] is True
    (pinned,) = re.findall(r"^ray==(.*)$", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    for spec in (standing["spec"], job["spec"]["rayClusterSpec"]):
        assert spec["rayVersion"] == pinned
        assert spec["authOptions"] == {"mode": "token"}
        (gpu,) = spec["workerGroupSpecs"]
        assert 1 <= gpu["minReplicas"] <= gpu["replicas"] <= gpu["maxReplicas"]
        assert all(isinstance(value, str) for value in spec["headGroupSpec"]["rayStartParams"].values())
        for group in (spec["headGroupSpec"], gpu):
            pod = group["template"]["spec"]
            (container,) = pod["containers"]
            assert {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]} == {"shared": "/shared"}
            (volume,) = pod["volumes"]
            assert volume["name"] == "shared"
            assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert gpu["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_the_kuberay_job_starts_a_study(planned: Callable[[Sequence[str]], str]) -> None:
    """Its command, planned here, without the cluster."""
    shell, option, script = shlex.split(documents("kuberay-job.yaml")[0]["spec"]["entrypoint"])
    assert (shell, option) == ("sh", "-c")
    before, _, command = script.partition(" && exec python -m launch.grid ")
    assert before == "cd /shared/pcl"
    words = shlex.split(command)
    arguments = grid_parser().parse_args(words)
    assert arguments.address == "auto"
    assert arguments.storage.path.is_absolute()
    assert arguments.tracking_uri.startswith("http")
    assert f"study {arguments.name}" in planned(words)


COMMAND = re.compile(r"^#\s+(?:python )(launch/submit\.py .*)$", re.MULTILINE)


def test_the_commands_that_files_name_can_be_sent(planned: Callable[[Sequence[str]], str]) -> None:
    lines = [COMMAND.findall((FILES / name).read_text()) for name in ("aws.yaml", "kuberay-cluster.yaml")]
    assert lines[0] == lines[1]
    for line, folder in zip(lines[0], ["/shared/pcl", ""], strict=True):  # the second is for a store
        own, _, command = line.removeprefix("launch/submit.py").partition("-- ")
        arguments = submit_parser().parse_args(shlex.split(own))
        sent = parcel(shlex.split(command), arguments.folder, "")
        assert sent.folder == folder
        assert sent.name == "grid"
        assert "stage 1: " in planned(sent.words)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[Sequence[str]], str]:
    """What launch/grid.py would do with some words, on a network that takes milliseconds, here."""

    def plan(words: Sequence[str]) -> str:
        fast = ["--scale", "smoke", "--storage", "/tmp/none", "--plan"]
        paths = ("task.smoothing", "task.largest_cosine")
        fast += [word for path in paths for word in ("--set", f"{path}={BASE[path]}")]
        here = [word for word in words if word not in ("--address", "auto")]
        monkeypatch.setattr(sys, "argv", ["launch/grid.py", *here, *fast])
        main()
        return capsys.readouterr().out

    return plan


def test_the_image_has_what_the_lock_pins() -> None:
    steps = (FILES / "Dockerfile").read_text()
    assert "requirements.lock" in steps
    assert not re.search(r"https?://", steps)


def test_a_trial_on_a_node_without_the_studys_folder_ends_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a node may come when the study has begun."""
    told: dict[str, str] = {}
    monkeypatch.setattr(tune_adapter.tune, "report", told.update)
    trial = Trial(RunConfig.of(BASE, scale="smoke").flat(), (1,), "grid")
    folder = tmp_path / "study" / "trials" / trial.key
    tune_adapter.run_jobs({"jobs": [Job(trial, str(folder), "train/loss").as_config()]})
    assert "must be shared" in told[tune_adapter.UNWRITABLE]
    assert not list(tmp_path.iterdir())


def test_studies_that_start_at_once_have_one_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(joining, "_has_token", lambda: False)  # each has looked before the other has made it
    joining.own_token()
    first = joining.token_file().read_text()
    joining.own_token()
    assert joining.token_file().read_text() == first
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert list((tmp_path / ".ray").iterdir()) == [joining.token_file()]
    assert joining.token_file().stat().st_mode & 0o777 == 0o600


def test_a_study_keeps_the_space_whose_file_goes(tmp_path: Path) -> None:
    file, folder = tmp_path / "job" / "mine.py", StudyFolder(tmp_path / "study")
    file.parent.mkdir()
    file.write_text("SPACE = None\n")
    spec = StudySpec(str(file), "content", "reference", "smoke")
    with opened(folder, spec):
        assert space_of(folder, spec) == str(file)
    file.unlink()
    assert Path(space_of(folder, spec)).read_text() == "SPACE = None\n"
    elsewhere = replace(spec, space=str(tmp_path / "other job" / "mine.py"))
    assert not elsewhere.difference(spec)
    assert replace(elsewhere, fingerprint="other").difference(spec)
