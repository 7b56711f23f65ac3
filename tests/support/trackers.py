"""Trials that tests of tracking record, and what MLflow has of them."""

import time
from pathlib import Path
from typing import Any

import pytest

from pcl.config.failure import Failure, FailureKind
from pcl.config.run_config import RunConfig
from pcl.studies.ledger.folders import Result, Row, Status, TrialFolder
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.store import default_uri
from pcl.studies.tracking.tracker import StudyTags, Tracker

TAGS = StudyTags("toy_x", "smoke", "paper", "eval/kappa_rank_corr", "toy", "c0ffee", "10c4", "a laptop")


@pytest.fixture(scope="session")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One database for all: a new one takes two seconds, and studies share a store."""
    return default_uri(tmp_path_factory.mktemp("runs"))


def make_trial(tmp_path: Path, seeds: tuple[int, ...] = (1,), n_samples: int = 4, stage: str = "grid") -> TrialFolder:
    config = RunConfig.of({"loss.n_samples": n_samples}, scale="smoke").flat()
    trial = Trial(config, seeds, stage, {"loss.n_samples": n_samples})
    folder = TrialFolder(tmp_path / "trials" / trial.key)
    folder.begin(trial)
    return folder


def report(folder: TrialFolder, *batches: int, bad: float = 0.5, failures: dict[int, Failure] | None = None) -> None:
    """Publish reports whose metrics tell seed and batch."""
    for batch in batches:
        by_seed = {
            seed: {"eval/kappa_rank_corr": seed / 10 + batch / 1000, "train/loss": float(batch), "eval/bad": bad}
            for seed in folder.trial().seeds
        }
        folder.publish(Row(batch, 8, time.time_ns() // 1_000_000, 0.1, by_seed, failures or {}), folder.claim())


def end(folder: TrialFolder, failure: Failure | None = None, traceback: str = "") -> None:
    folder.close(Result(Status.FAILED if failure else Status.FINISHED, failure, traceback, hardware="a GPU"))


def error(text: str) -> Failure:
    return Failure(FailureKind.ERROR, text)


def opened(uri: str, name: str, tags: StudyTags = TAGS) -> Tracker:
    tracker = Tracker(uri)
    tracker.open_study(name, tags)
    return tracker


def runs_of(tracker: Tracker, study: str, kind: str) -> list[Any]:
    store = tracker.store
    return store.find(store.experiments("pcl/"), {"pcl.study": study, "pcl.kind": kind})


def steps_of(tracker: Tracker, run: Any, metric: str = "train/loss") -> list[int]:
    history = tracker.store.call(lambda client: client.get_metric_history(run.info.run_id, metric))
    return [point.step for point in history]


def artifact(tracker: Tracker, run: Any, name: str, tmp_path: Path) -> str:
    found = tracker.store.call(lambda client: client.download_artifacts(run.info.run_id, name, str(tmp_path)))
    return Path(found).read_text()
