"""The Python API: a search and an ablation in this process, read back as tables, and the winner's encoder."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import pcl
from pcl.config.failure import Failure, FailureKind
from pcl.studies.ledger.folders import Result, Status
from pcl.studies.ledger.opened_study import space_of
from pcl.training.run import Run
from tests.support.services import BASE, SHORT, Records, check_records
from tests.support.user_parts import TASK

METRIC = "eval/kappa_rank_corr"
SPACE = pcl.SearchSpace(
    "mine", "mc_info_nce", (pcl.Stage("grid", {"loss.n_samples": (2, 4), "training.phases": ("mu kappa", "joint")}),),
    SHORT, tuning_seeds=(1, 2), report_seeds=(4,),
)  # fmt: skip


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def study(storage: Path) -> pcl.Study:
    return pcl.search(SPACE, scale="smoke", seeds=(1, 2), storage=storage, name="first", say=lambda _: None)


def test_a_search_its_tables_and_its_winner(study: pcl.Study, storage: Path) -> None:
    """The example of the manual, in one process, in under 20 s on two cores."""
    again = pcl.open_study("first", storage)
    assert again.spec == study.spec
    assert pcl.open_study(storage / "first").trials.equals(again.trials)
    trials, seeds, curves = again.trials, again.seeds, again.curves
    assert len(trials) == 4
    assert list(trials["rank"]) == [1, 2, 3, 4]
    assert set(trials["status"]) == {"finished"}
    assert set(trials["failure"]) == {""}
    assert trials["objective"].is_monotonic_decreasing
    assert sorted(zip(trials["loss.n_samples"], trials["training.phases"], strict=True)) == [
        (2, "joint"), (2, "mu kappa"), (4, "joint"), (4, "mu kappa"),
    ]  # fmt: skip
    assert list(seeds["seed"]) == [1, 2] * 4
    means = seeds.groupby("trial", sort=False)[METRIC].mean()
    assert list(means) == pytest.approx(list(trials["objective"]))
    assert list(means) == pytest.approx(list(trials[METRIC]))
    assert len(curves) == 4 * 2 * 2
    assert sorted(set(curves["batch"])) == [2, 4]
    last = curves[curves["batch"] == 4].set_index(["trial", "seed"])[METRIC].sort_index()
    assert last.equals(seeds.set_index(["trial", "seed"])[METRIC].sort_index())
    best = study.best
    assert best.key == study.trials["trial"][0]
    assert best.config.flat()["loss.n_samples"] == best.varied["loss.n_samples"]
    encoder = best.encoder()
    assert (encoder.seed, best.encoder(seed=2).seed) == (1, 2)
    assert encoder.config == best.config
    run = Run.restore(best.folder.checkpoint)
    x = torch.rand(5, 3)
    expected = run.step.encoder(x.expand(2, 5, 3))
    for index, seed in enumerate((1, 2)):
        posterior = best.encoder(seed)(x)
        assert isinstance(posterior, pcl.VonMisesFisher)
        assert torch.equal(posterior.mu, expected.mu[index])
        assert torch.equal(posterior.kappa, expected.kappa[index])
    with pytest.raises(ValueError, match="must be one of 1, 2"):
        best.encoder(seed=3)
    assert torch.equal(pcl.load_encoder(best.folder.checkpoint)(x).mu, encoder(x).mu)


def test_records_are_those_of_a_study_on_ray(study: pcl.Study, storage: Path) -> None:
    check_records(study.folder, storage)
    assert {"best.yaml", "trials.csv", "summary.json", "study.json"} <= {path.name for path in study.path.iterdir()}


def test_the_same_call_goes_on_and_another_is_refused(
    study: pcl.Study, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "moments", lambda _: pytest.fail("nothing is left to train"))
    how: dict[str, Any] = {"scale": "smoke", "storage": storage, "name": "first", "say": lambda _: None}
    assert pcl.search(SPACE, seeds=(1, 2), **how).trials.equals(study.trials)
    with pytest.raises(ValueError, match="is another one"):
        pcl.search(SPACE, seeds=(1,), **how)
    with pytest.raises(ValueError, match="made in Python"):
        space_of(study.folder, study.spec)
    for name, message in (
        ("no/name", "must be letters"),
        ("mlflow.db", "is reserved"),
        ("train", "is reserved"),
        ("", "must not be empty"),
    ):
        with pytest.raises(ValueError, match=message):
            pcl.search(SPACE, **{**how, "name": name})
    for wrong in (
        {"method": "bayes"},
        {"method": "random", "search_seed": -1},
        {"scheduler": "pbt"},
        {"objectives": ["eval/nothing"]},
        {"scale": "huge"},
    ):
        with pytest.raises(ValueError, match="must be"):
            pcl.search(SPACE, **{**how, "name": None, **wrong})
    with pytest.raises(ValueError, match="A number of trials goes with the search random or optuna"):
        pcl.search(SPACE, **{**how, "name": None}, n_trials=3)
    with pytest.raises(ValueError, match="`scale` must be one of"):
        pcl.ablate("mc_samples", scale="huge", storage=storage)
    with pytest.raises(ValueError, match="There is no study"):
        pcl.open_study("other", storage)
    with pytest.raises(ValueError, match="for the runner ray"):
        pcl.search(SPACE, address="auto", **how)


def test_an_ablation_of_a_file(storage: Path) -> None:
    file = storage / "speed.py"
    file.write_text(
        "from pcl import Ablation, Variant\n"
        "VARIANTS = {'slow': Variant({'training.lr': 1e-4}), 'fast': Variant({'training.lr': 1e-2}),\n"
        "            'broken': Variant({'training.kappa_limit': 1e-3})}\n"
        f"ABLATION = Ablation('speed', 'How fast?', 'speed', 'slow', VARIANTS, base={SHORT!r})\n"
    )
    found = pcl.ablate(file, scale="smoke", storage=storage, say=lambda _: None)
    assert found.name.startswith("speed-smoke-")
    trials = found.trials.set_index("speed")
    assert dict(trials["status"]) == {"slow": "finished", "fast": "finished", "broken": "failed"}
    assert "runaway kappa" in trials["failure"]["broken"]
    assert math.isnan(trials["rank"]["broken"])
    assert set(found.seeds["seed"]) == {4, 5}
    broken = found.seeds[found.seeds["speed"] == "broken"]
    assert set(broken["status"]) == {"failed"}
    assert all("runaway kappa" in failure for failure in broken["failure"])
    assert {"ablation.txt", "ablation.csv", "trials.csv"} <= {path.name for path in found.path.iterdir()}
    assert found.best.varied in ({"speed": "slow"}, {"speed": "fast"})
    check_records(found.folder, storage)
    # Reading runs no code of the study, neither its file nor the copy of it.
    for code in (file, found.path / "space.py"):
        code.write_text("raise SystemExit")
    assert pcl.open_study(found.path).best.key == found.best.key


def test_an_error_of_what_is_told_ends_the_study_and_the_same_call_goes_on(storage: Path) -> None:
    space = dataclasses.replace(SPACE, name="telling", stages=(pcl.Stage("grid", {"loss.n_samples": (2, 3)}),))

    def fail(line: str) -> None:
        if line.strip().startswith("1/2"):
            raise ZeroDivisionError

    how: dict[str, Any] = {"scale": "smoke", "seeds": (1,), "storage": storage, "name": "telling"}
    with pytest.raises(ZeroDivisionError):
        pcl.search(space, say=fail, **how)
    records = Records(storage, "telling")
    assert records.parent().info.status == "FAILED"
    assert "RUNNING" not in records.statuses()
    check_records(pcl.search(space, say=lambda _: None, **how).folder, storage)


def test_a_users_own_task_is_none_of_images(storage: Path) -> None:
    space = pcl.SearchSpace(
        "own", "mc_info_nce", (pcl.Stage("grid", {"task.share": (0.25, 0.75)}),), BASE, task=TASK, tuning_seeds=(1,)
    )
    study = pcl.search(space, scale="smoke", storage=storage, name="own", say=lambda _: None)
    assert set(study.trials["status"]) == {"finished"}


def test_a_study_that_is_not_over(study: pcl.Study, tmp_path: Path) -> None:
    spec, trial = study.spec, study.folder.trial(study.best.key)
    (tmp_path / "half").mkdir()
    for name in ("study.json", "objective.json"):
        (tmp_path / "half" / name).write_text((study.path / name).read_text())
    half = pcl.open_study(tmp_path / "half")
    assert half.spec == spec
    assert list(half.trials.columns[:6]) == ["trial", "stage", "rank", "status", "failure", "objective"]
    assert len(half.trials) == len(half.seeds) == len(half.curves) == 0
    with pytest.raises(ValueError, match="no winner"):
        _ = half.best
    folder = half.folder.trial(trial.key)
    folder.begin(trial.trial())
    assert list(pcl.open_study(half.path).trials["status"]) == ["unfinished"]
    folder.close(Result(Status.FAILED, Failure(FailureKind.WORKER_DIED, "killed")))
    assert list(pcl.open_study(half.path).trials["failure"]) == ["worker died: killed"]
