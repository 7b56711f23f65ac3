"""The main command with the real thing, where trials fail and where what it is asked for cannot be."""

import signal
from pathlib import Path

import pytest

from launch.grid import main
from launch.testbed.processes import signal_all
from tests.support.services import (
    BASE,
    INLINE,
    LONG,
    ONE_WORKER,
    Home,
    Records,
    assert_refused,
    check_records,
    free_port,
    summary_of,
    wait_for,
)

EXPECTED_SECONDS = 45

FAULTS: dict[str, dict[str, float]] = {
    "diverges": {"training.lr": 1e30},
    "runs away": {"training.kappa_limit": 1e-3},
    "raises": {"task.max_draws": 1, "task.largest_cosine": -0.999},
    "too large": {"loss.n_samples": 10**15},  # beyond any address space: less is given, and filled until Ray kills
    "fine": {"training.lr": 1e-3},
}
CAUSES = {
    "diverges": "the encoder returns NaN at batch 4",
    "runs away": "runaway kappa",
    "raises": "ValueError: No generator",
    "too large": "out of memory",
}


def faults(place: Home, name: str, *labels: str) -> Path:
    """A space of trials of which most fail."""
    base = {path: value for path, value in BASE.items() if path != "task.largest_cosine"}
    fine = {"task.largest_cosine": 0.9}
    return place.variants(name, "fault", {label: {**fine, **FAULTS[label]} for label in labels}, base)


def test_failed_trials_are_recorded_and_the_study_goes_on(joined: Home) -> None:
    """Inline until the first fails, then on Ray."""
    space = faults(joined, "faults", *FAULTS)
    study = ["--space", space, "--scale", "smoke", "--name", "s"]
    stopped = joined.run(*study, "--fail-fast", *INLINE, code=1)
    assert "a trial failed (seed 1: the encoder returns NaN" in stopped.errors
    assert Records(joined.storage, "s").parent().info.status == "KILLED"
    (failed,) = [trial for trial in joined.study("s").trials() if trial.result()]
    first_end = failed.result()

    grid = joined.run("--resume", "s", *ONE_WORKER)
    records = check_records(joined.study("s"), joined.storage)
    assert records.statuses() == {"FAILED": 4, "FINISHED": 1}
    assert failed.result() == first_end
    causes = {run.data.tags["mlflow.runName"]: run.data.tags.get("pcl.cause", "") for run in records.runs("trial")}
    assert set(causes) == {f"fault={label}" for label in FAULTS}
    kinds = {
        run.data.tags["mlflow.runName"]: run.data.tags.get("pcl.failure_kind", "") for run in records.runs("trial")
    }
    assert set(kinds.values()) == {"nan", "runaway_kappa", "error", "out_of_memory", ""}
    for label, cause in CAUSES.items():
        assert cause in causes[f"fault={label}"]
        assert any(label in line and f"FAILED: {causes[f'fault={label}']}" in line for line in grid.said.splitlines())
    too_large = next(run for run in records.runs("trial") if run.data.tags["mlflow.runName"] == "fault=too large")
    assert "Traceback" in records.artifact(too_large, "failure.txt")
    assert summary_of(joined.study("s"))["best"]["varied"] == {"fault": "fine"}


@pytest.mark.slow
def test_a_trial_whose_workers_are_always_killed_fails(joined: Home) -> None:
    """As by a kernel that is out of memory."""
    endless = {**LONG, "training.n_batches": 1_000_000}  # what is left of it is never done before the next kill
    space = joined.space("doomed", {"grid": {"loss.n_samples": [2]}}, endless)
    grid = joined.start("--space", space, "--scale", "smoke", "--name", "s")

    def killed_until_it_ends() -> bool:
        signal_all(joined.workers(), signal.SIGKILL)
        return grid.process.poll() is not None

    wait_for(killed_until_it_ends, "the study ends")
    grid.ended(1)
    assert "FAILED: worker died" in grid.said
    assert "MLflow lacks" not in grid.said
    check_records(joined.study("s"), joined.storage, "FAILED")


@pytest.mark.slow
def test_a_trial_that_rays_memory_monitor_kills_fails_alone(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a node that has too little memory for any; what Ray says of it is the cause."""
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.001")
    space = place.space("large", {"grid": {"loss.n_samples": [2]}}, {**LONG, "training.n_batches": 1_000_000})
    grid = place.run("--space", space, "--scale", "smoke", "--name", "s", *ONE_WORKER, code=1)
    assert "no trial of a stage finished" in grid.errors
    assert "FAILED: worker died" in grid.said
    assert "low on memory" in grid.said
    check_records(place.study("s"), place.storage, "FAILED")


def test_two_studies_at_once_share_a_store(place: Home) -> None:
    """One of them goes through two stages, the other has no winner."""
    staged = place.space("staged", {"first": {"loss.n_samples": [2, 4]}, "second": {"training.lr": [1e-4, 1e-3, 1e-2]}})
    failing = faults(place, "failing", "diverges", "runs away")
    grids = [
        place.start("--space", staged, "--scale", "smoke", "--name", "a", "--finalize", *INLINE),
        place.start("--space", failing, "--scale", "smoke", "--name", "b", *INLINE),
    ]
    grids[1].ended(1)
    assert "no trial of a stage finished" in grids[1].errors
    grids[0].ended()
    records = check_records(place.study("b"), place.storage, "FAILED")
    assert records.statuses() == {"FAILED": 2}
    assert summary_of(place.study("b"))["best"] is None
    assert not (place.study("b").path / "best.yaml").exists()

    # The second stage's cell at the default rate is the first stage's winner, which is not trained again.
    records = check_records(place.study("a"), place.storage)
    found = summary_of(place.study("a"))
    assert [len(stage) for stage in found["stages"].values()] == [2, 3]
    assert found["stages"]["second"][0]["varied"].keys() == {"loss.n_samples", "training.lr"}
    assert {entry["varied"]["loss.n_samples"] for entry in found["stages"]["second"]} == {
        found["stages"]["first"][0]["varied"]["loss.n_samples"]
    }
    assert [entry["seeds"] for entry in found["report"]] == [[4, 5, 6, 7, 8]] * 3
    assert len(records.runs("trial")) == 2 + 2 + 3


SPACE = "from pcl.studies.space import SearchSpace, Stage\n"
BAD_INPUT = {
    "unknown space": (["--space", "toy_mcinfonc"], "Did you mean 'toy_mcinfonce'?"),
    "no space": ([], "`--space NAME`, `--resume` or `--list` must be given."),
    "missing file": (["--space", "nowhere/mine.py"], "There is no search space file nowhere/mine.py."),
    "malformed space": (["--space", "{bad}"], "bad.py is not valid: line 2"),
    "no images": (["--space", "toy_elk", "--data", "embedded"], "`--data` is for spaces of images"),
    "unknown path": (["--space", "toy_elk", "--set", "loss.kappa_po=3"], "Did you mean 'loss.kappa_pos'?"),
    "wrong type": (["--space", "toy_elk", "--set", "training.n_batches=many"], "training.n_batches"),
    "no value": (["--space", "toy_elk", "--set", "training.lr"], "`--set` takes PATH=VALUE"),
    "set axis": (["--space", "toy_elk", "--set", "training.phases=joint"], "must not be set, as the stage"),
    "bad seeds": (["--space", "toy_elk", "--seeds", "1,1"], "--seeds: takes distinct whole numbers"),
    "report seeds": (["--space", "toy_elk", "--seeds", "1,4"], "must differ from the report seeds 4, 5, 6"),
    "bad name": (["--space", "toy_elk", "--name", "../up"], "--name: must be letters"),
    "slash": (["--space", "toy_elk", "--name", "/"], "--name: must be letters"),
    "dots": (["--space", "toy_elk", "--name", ".."], "--name: must be letters"),
    "control": (["--space", "toy_elk", "--name", "a\x1b[2J\n"], "--name: must be letters"),
    "empty name": (["--space", "toy_elk", "--name", ""], "--name: must not be empty"),
    "long name": (["--space", "toy_elk", "--name", "x" * 5000], "--name: must have at most 200 characters"),
    "taken name": (["--space", "toy_elk", "--name", "mlflow.db"], "--name: must not be 'mlflow.db'"),
    "long study": (["--resume", "x" * 5000], "--resume: must have at most 255 characters"),
    "no study": (["--resume", "../up"], "--resume: must be letters"),
    "warm start": (["--space", "toy_elk", "--search", "optuna", "--warm-start", "/"], "--warm-start: must be letters"),
    "contradiction": (["--resume", "s", "--space", "toy_elk", "--seeds", "1"], "leave out --space, --seeds"),
    "nothing there": (["--resume"], "There is no study in"),
    "no such study": (["--resume", "s"], "There is no study 's' in"),
    "no cluster": (["--space", "toy_elk", "--address", "127.0.0.1:{port}"], "No Ray cluster can be reached at 127."),
    "dashboard": (["--space", "toy_elk", "--address", "http://a:8265"], "launch/submit.py --address http://a:8265"),
    "far cluster": (["--space", "toy_elk", "--address", "ray://no-such-host.invalid:1"], "No Ray dashboard can be"),
    "far folder": (["--space", "toy_elk", "--storage", "runs", "--address=ray://h"], "an absolute path that all"),
    "no host": (["--space", "toy_elk", "--address", "ray://:10001"], "must name a host"),
    "no server": (["--space", "toy_elk", "--tracking-uri", "http://127.0.0.1:{port}"], "cannot be reached"),
    "odd store": (["--space", "toy_elk", "--tracking-uri", "ftp://x"], "The tracking URI must be"),
    "no such GPU": (["--space", "toy_elk", "--gpus-per-trial", "64"], "but the cluster has"),
    "too many CPUs": (["--space", "toy_elk", "--cpus-per-trial", "4096"], "A trial asks for 4096 CPUs"),
    "secret": (["--space", "toy_elk", "--storage", "s3://key:secret@bucket/runs"], "be without passwords and keys"),
    "odd storage": (["--space", "toy_elk", "--storage", "ftp://host/runs"], "Unrecognized filesystem type in URI"),
    "not a folder": (["--space", "toy_elk", "--storage", "{bad}/runs"], "`storage` must be a folder"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_in_one_sentence_and_makes_nothing(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = BAD_INPUT[case]
    bad, storage = tmp_path / "bad.py", tmp_path / "runs"
    bad.write_text(f"{SPACE}SPACE = SearchSpace('x', 'elk', (Stage('s', {{'loss.nothing': (1, 2)}}),))\n")
    words = [word.format(bad=bad, port=free_port()) for word in arguments]
    words += ["--storage", str(storage)] if "--storage" not in words else []
    assert_refused("launch/grid.py", main, words, message, monkeypatch, capsys)
    assert not storage.exists()
