"""Tracking against real MLflow: a real sqlite database, and a real server that is killed and comes back."""

import math
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from pcl.config.run_config import RunConfig
from pcl.studies.ledger.provenance import source_hash
from pcl.studies.tracking.run_content import Winner, params_of
from pcl.studies.tracking.tracker import End, StoreError
from tests.support.trackers import TAGS, artifact, end, error, make_trial, opened, report, runs_of, steps_of


def test_a_trial_is_recorded_once_however_often_and_by_whom_it_is_synced(uri: str, tmp_path: Path) -> None:
    folder = make_trial(tmp_path)
    report(folder, 4)
    first = opened(uri, "once")
    for _ in range(2):
        first.sync(folder)
    report(folder, 8, bad=math.nan)
    first.sync(folder)
    report(folder, 12)
    end(folder)
    for _ in range(2):  # as after a crash: nothing is known but what the store has
        second = opened(uri, "once")
        second.sync(folder)
        second.sync(folder)
    assert [run.info.run_id for run in runs_of(second, "once", "study")] == [second.open_study("once", TAGS)]
    (run,) = runs_of(second, "once", "trial")
    assert second.run_id(folder) == run.info.run_id
    assert run.info.status == "FINISHED"
    assert steps_of(second, run) == [4, 8, 12]
    assert len(steps_of(second, run, "eval/bad")) == 3
    assert steps_of(second, run, "objective") == [12]
    assert run.data.metrics["objective"] == pytest.approx(0.112)
    assert "objective_se" not in run.data.metrics
    assert run.data.params == {**{k: str(v) for k, v in folder.trial().config.items()}, "seeds": "1"}
    expected = {
        "pcl.study": "once", "pcl.kind": "trial", "pcl.trial": folder.key, "pcl.stage": "grid", "pcl.seed": "1",
        "pcl.space": "toy_x", "pcl.scale": "smoke", "pcl.fidelity": "paper", "pcl.data": "toy", "pcl.commit": "c0ffee",
        "pcl.lock": "10c4", "pcl.hardware": "a GPU", "pcl.source": source_hash(), "mlflow.runName": "n_samples=4",
    }  # fmt: skip
    assert expected.items() <= run.data.tags.items()
    config = yaml.safe_load(artifact(second, run, "config.yaml", tmp_path))
    assert RunConfig.from_flat(config) == folder.trial().run_config


def test_several_seeds_have_runs_of_their_own(uri: str, tmp_path: Path) -> None:
    folder = make_trial(tmp_path, seeds=(1, 2, 3))
    report(folder, 4)
    report(folder, 8, failures={2: error("kappa ran away")})
    end(folder)
    tracker = opened(uri, "seeds")
    tracker.sync(folder)
    (run,) = runs_of(tracker, "seeds", "trial")
    assert run.data.params["seeds"] == "1,2,3"
    assert run.data.metrics["objective"] == pytest.approx(0.208)  # seeds 1 and 3
    assert run.data.metrics["objective_se"] == pytest.approx(0.1)
    seeds = runs_of(tracker, "seeds", "seed")
    assert [seed.data.tags["pcl.seed"] for seed in seeds] == ["1", "2", "3"]
    assert {seed.data.tags["mlflow.parentRunId"] for seed in seeds} == {run.info.run_id}
    assert [seed.info.status for seed in seeds] == ["FINISHED", "FAILED", "FINISHED"]
    assert seeds[1].data.tags["pcl.cause"] == "kappa ran away"
    assert all(steps_of(tracker, seed) == [4, 8] for seed in seeds)
    assert seeds[2].data.metrics["eval/kappa_rank_corr"] == pytest.approx(0.308)
    found = tracker.finished(folder.key)
    assert found is not None
    assert found.by_seed == folder.rows()[-1].by_seed
    assert found.failures == {2: error("kappa ran away")}


def test_not_a_number_and_infinity(uri: str, tmp_path: Path) -> None:
    folder = make_trial(tmp_path, n_samples=41)
    report(folder, 4, bad=math.inf)
    report(folder, 8, bad=math.nan)
    report(folder, 12, bad=-math.inf)
    for _ in range(2):
        tracker = opened(uri, "nan")
        tracker.sync(folder)
    (run,) = runs_of(tracker, "nan", "trial")
    history = tracker.store.call(lambda client: client.get_metric_history(run.info.run_id, "eval/bad"))
    assert [point.value for point in history if point.step != 8] == [sys.float_info.max, -sys.float_info.max]
    assert [math.isnan(point.value) for point in history] == [False, True, False]
    end(folder)
    tracker.sync(folder)
    found = tracker.finished(folder.key)
    assert found is not None
    assert found.by_seed[1]["eval/bad"] == -math.inf


def test_a_failure_has_its_cause_and_traceback(uri: str, tmp_path: Path) -> None:
    folder = make_trial(tmp_path, n_samples=42)
    report(folder, 4)
    end(folder, error("ValueError: no"), "Traceback (most recent call last): here")
    tracker = opened(uri, "failed")
    tracker.sync(folder)
    (run,) = runs_of(tracker, "failed", "trial")
    assert run.info.status == "FAILED"
    assert run.data.tags["pcl.cause"] == "ValueError: no"
    assert "objective" not in run.data.metrics
    assert "Traceback (most recent call last): here" in artifact(tracker, run, "failure.txt", tmp_path)
    assert tracker.finished(folder.key) is None


def test_a_trial_that_failed_before_it_reported_goes_on_in_its_run(uri: str, tmp_path: Path) -> None:
    folder = make_trial(tmp_path)
    end(folder, error("worker killed"))
    tracker = opened(uri, "reopened")
    tracker.sync(folder)
    (before,) = runs_of(tracker, "reopened", "trial")
    folder.reopen()
    tracker.sync(folder)
    (run,) = runs_of(tracker, "reopened", "trial")
    assert run.info.run_id == before.info.run_id
    assert run.info.status == "RUNNING"
    assert "pcl.cause" not in run.data.tags
    report(folder, 4)
    end(folder)
    tracker.sync(folder)
    (run,) = runs_of(tracker, "reopened", "trial")
    assert (run.info.status, steps_of(tracker, run)) == ("FINISHED", [4])


@pytest.mark.parametrize("is_new_driver", [False, True])
def test_a_trial_that_begins_anew_has_no_step_twice(uri: str, tmp_path: Path, is_new_driver: bool) -> None:
    study = f"anew {is_new_driver}"
    folder = make_trial(tmp_path, seeds=(1, 2))
    report(folder, 4, 8)
    end(folder, error("worker killed"))
    tracker = opened(uri, study)
    tracker.sync(folder)
    folder.reopen()
    time.sleep(0.002)
    report(folder, 4)
    if is_new_driver:
        tracker = opened(uri, study)
    tracker.sync(folder)
    report(folder, 8)
    end(folder)
    tracker.sync(folder)
    (run,) = runs_of(tracker, study, "trial")
    seeds = runs_of(tracker, study, "seed")
    assert [r.info.status for r in (run, *seeds)] == ["FINISHED"] * 3
    assert [steps_of(tracker, r) for r in (run, *seeds)] == [[4, 8]] * 3


def datasets_of(tracker: Any, run: Any) -> list[str]:
    whole = tracker.store.call(lambda client: client.get_run(run.info.run_id))
    return [given.dataset.name for given in whole.inputs.dataset_inputs]


def test_closing_marks_what_is_open_and_resuming_opens_it(uri: str, tmp_path: Path) -> None:
    done, stopped = make_trial(tmp_path, n_samples=5), make_trial(tmp_path, seeds=(1, 2), n_samples=6)
    for folder in (done, stopped):
        report(folder, 4)
        opened(uri, "closed").sync(folder)  # each by a driver that then dies
    end(done)
    tracker = opened(uri, "closed")
    tracker.sync(done)
    tracker.summarize(Winner(done.trial(), {"best/objective": 0.9, "undefined": math.nan}, "the table"))
    tracker.close_study(End.KILLED)
    (parent,) = runs_of(tracker, "closed", "study")
    assert (parent.info.status, parent.data.metrics) == ("KILLED", {"best/objective": 0.9})
    assert parent.data.params == params_of(done.trial(), done.trial().seeds)
    assert parent.data.tags["pcl.winner"] == tracker.run_id(done)
    assert parent.data.tags["mlflow.note.content"] == "the table"
    assert datasets_of(tracker, parent) == [parent.data.tags["pcl.data"]]
    statuses = {run.data.tags["pcl.trial"]: run.info.status for run in runs_of(tracker, "closed", "trial")}
    assert statuses == {done.key: "FINISHED", stopped.key: "KILLED"}
    assert [run.info.status for run in runs_of(tracker, "closed", "seed")] == ["KILLED"] * 2

    end(stopped)
    tracker = opened(uri, "closed")
    assert runs_of(tracker, "closed", "study")[0].info.status == "RUNNING"
    tracker.sync(stopped)
    tracker.summarize(Winner(stopped.trial(), {"best/objective": 0.95}, "another table"))
    tracker.close_study(End.FINISHED)
    (parent,) = runs_of(tracker, "closed", "study")
    assert parent.data.params == params_of(done.trial(), done.trial().seeds)  # which cannot change
    assert parent.data.tags["pcl.winner"] == tracker.run_id(stopped)
    assert parent.data.tags["pcl.params_of"] == tracker.run_id(done)
    assert parent.data.tags["mlflow.note.content"].startswith("The parameters here are those of an earlier winner")
    assert len(datasets_of(tracker, parent)) == 1
    ended = [run for kind in ("study", "trial", "seed") for run in runs_of(tracker, "closed", kind)]
    assert [run.info.status for run in ended] == ["FINISHED"] * 5


def test_runs_made_twice_are_reduced_to_the_first(uri: str, tmp_path: Path) -> None:
    """A server may have made a run and yet not answered in time."""
    folder = make_trial(tmp_path)
    report(folder, 4)
    tracker = opened(uri, "twice")
    tracker.sync(folder)
    (run,) = runs_of(tracker, "twice", "trial")
    tags = {key: run.data.tags[key] for key in ("pcl.study", "pcl.kind", "pcl.trial")}
    tracker.store.create(run.info.experiment_id, "double", tags)
    tracker.close_study(End.FINISHED)
    assert [r.info.run_id for r in runs_of(tracker, "twice", "trial")] == [run.info.run_id]


def test_a_crash_or_a_lost_answer_after_any_request_leaves_no_trace(uri: str, tmp_path: Path) -> None:
    """The k-th request is done but not answered; then the same driver, or a new one, tries again."""
    writing = ("create_run", "log_batch", "set_terminated", "log_text")
    n_requests = math.inf
    k = 0
    while k < n_requests:
        study, left = f"lost {k}", k
        folder = make_trial(tmp_path / study, seeds=(1, 2))

        def lossy(name: str, true: Any) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                nonlocal left
                answer = true(*arguments, **named)
                left -= 1
                if left == -1:
                    raise ConnectionError(f"no answer to {name}")
                return answer

            return call

        tracker = opened(uri, study)
        with pytest.MonkeyPatch.context() as patch:
            client = tracker.store._open()
            for name in writing:
                patch.setattr(client, name, lossy(name, getattr(client, name)))
            try:
                report(folder, 4)
                tracker.sync(folder)
                report(folder, 8)
                end(folder)
                tracker.sync(folder)
                n_requests = k
            except StoreError:
                tracker = tracker if k % 2 else opened(uri, study)
        if not folder.result():
            report(folder, 8)
            end(folder)
        tracker.sync(folder)
        tracker.close_study(End.FINISHED)
        (run,), seeds = runs_of(tracker, study, "trial"), runs_of(tracker, study, "seed")
        assert [r.info.status for r in (run, *seeds)] == ["FINISHED"] * 3, k
        assert [steps_of(tracker, r) for r in (run, *seeds)] == [[4, 8]] * 3, k
        assert steps_of(tracker, run, "objective") == [8], k
        k += 1
    assert k > 12


def test_a_run_deleted_by_hand_is_made_again(uri: str, tmp_path: Path) -> None:
    folder = make_trial(tmp_path)
    report(folder, 4)
    tracker = opened(uri, "deleted")
    tracker.sync(folder)
    tracker.store.delete(tracker.run_id(folder))
    report(folder, 8)
    with pytest.raises(StoreError):
        tracker.sync(folder)
    tracker.sync(folder)
    (run,) = runs_of(tracker, "deleted", "trial")
    assert steps_of(tracker, run) == [4, 8]


def test_a_parameter_that_is_there_with_another_value_stays(uri: str, tmp_path: Path) -> None:
    folder = make_trial(tmp_path)
    tracker = opened(uri, "conflict")
    tags = {"pcl.study": "conflict", "pcl.kind": "trial", "pcl.trial": folder.key}
    tracker.store.create(tracker.store.experiment("pcl/toy_x"), "x", tags)
    (run,) = runs_of(tracker, "conflict", "trial")
    tracker.store.log(run.info.run_id, params={"loss.n_samples": "4.0"})
    tracker = opened(uri, "conflict")
    tracker.sync(folder)
    (run,) = runs_of(tracker, "conflict", "trial")
    assert (run.data.params["loss.n_samples"], run.data.params["seeds"]) == ("4.0", "1")
