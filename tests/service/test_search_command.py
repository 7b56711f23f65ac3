"""launch/grid.py --search and --scheduler: what is refused; with Ray, a search that is killed, and early stopping."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import optuna
import pytest

from launch.grid import main
from pcl.studies.ledger.folders import Status, StudyFolder
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.search.optuna_study import DATABASE
from pcl.studies.space.search_method import RANDOM
from pcl.studies.space.search_space import load_space
from tests.support.searches import METRIC, OTHER, Driver, end, kept, spec_of
from tests.support.services import (
    BASE,
    INLINE,
    LONG,
    ONE_WORKER,
    Home,
    Records,
    assert_refused,
    check_records,
    go_on,
    summary_of,
    wait_for,
)

EXPECTED_SECONDS = 35

BAD_INPUT = {
    "ranges as grid": (["--space", "{ranged}"], "has ranges, of which there is no grid: take the search random"),
    "trials of a grid": (["--space", "toy_elk", "--trials", "3"], "A number of trials goes with the search random or"),
    "seed of a grid": (["--space", "toy_elk", "--search-seed", "3"], "A search seed goes with"),
    "negative seed": (["--space", "toy_elk", "--search", "random", "--search-seed", "-3"], "at least 0, but got -3"),
    "sampler": (["--space", "toy_elk", "--search", "random", "--sampler", "gp"], "A sampler goes with the search opt"),
    "warm random": (["--space", "toy_elk", "--search", "random", "--warm-start", "s"], "A warm start goes with"),
    "no such study": (["--space", "toy_elk", "--search", "optuna", "--warm-start", "s"], "There is no study 's' in"),
    "empty study": (["--space", "toy_elk", "--search", "optuna", "--warm-start", ""], "--warm-start: must not be"),
    "empty objectives": (["--space", "toy_elk", "--objectives", ""], "`--objectives` must not be empty"),
    "no number": (["--space", "toy_elk", "--search", "random", "--trials", "x"], "at least 1 must be given, but"),
    "no such search": (["--space", "toy_elk", "--search", "bayes"], "argument --search: invalid choice: 'bayes'"),
    "objective": (["--space", "toy_elk", "--objectives", "val/recall_at_1"], "`objectives` must be some of eval/"),
    "twice": (["--space", "toy_elk", "--objectives", f"{METRIC},{METRIC}"], "every metric once"),
    "no better end": (["--space", "toy_elk", "--objectives", "eval/kappa_mean"], "neither end of it is the better"),
    "resumed": (["--resume", "s", "--search-seed", "0", "--trials", "3"], "leave out --trials, --search-seed"),
    "pbt": (["--space", "toy_elk", "--scheduler", "pbt"], "no configuration describes a trial"),
    "two metrics": (["--space", "toy_elk", "--scheduler", "asha", "--objectives", f"{METRIC},{OTHER}"], "one obj"),
    "normal": (["--space", "{normal}", "--search", "optuna"], "the axis 'loss.kappa_pos' must be uniform"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_in_one_sentence_and_makes_nothing(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = BAD_INPUT[case]
    files = {name: tmp_path / f"{name}.py" for name in ("ranged", "normal")}
    head = "from ray import tune\nfrom pcl.studies.space.search_space import SearchSpace, Stage, uniform\n"
    for name, axis in (("ranged", "uniform(1, 9)"), ("normal", "tune.randn(50, 1)")):
        axes = f"{{'loss.kappa_pos': {axis}}}"
        files[name].write_text(f"{head}SPACE = SearchSpace('{name}', 'elk', (Stage('s', {axes}),))\n")
    words = [word.format(**files) for word in arguments]
    assert_refused("launch/grid.py", main, [*words, "--storage", str(tmp_path / "runs")], message, monkeypatch, capsys)
    assert not (tmp_path / "runs").exists()


def test_a_warm_start_of_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another space, other objectives, another scale, and nothing finished."""
    space = load_space("toy_elk")
    fine = StudySpec("toy_elk", space.fingerprint(), "reference", "smoke", tuning_seeds=(1,))
    studies = {
        "space": (dataclasses.replace(fine, fingerprint="other"), "content of the space: 'other' there"),
        "objectives": (dataclasses.replace(fine, objectives=(OTHER,)), "objectives: ['eval/mu_mae'] there, [] here"),
        "scale": (dataclasses.replace(fine, scale="quick"), "scale: 'quick' there, 'smoke' here"),
        "empty": (fine, "takes a study with finished trials, but 'empty' has none"),
    }
    for name, (spec, message) in studies.items():
        (tmp_path / name).mkdir()
        kept(StudyFolder(tmp_path / name), spec)
        words = ["--space", "toy_elk", "--scale", "smoke", "--search", "optuna", "--warm-start", name]
        assert_refused("launch/grid.py", main, [*words, "--storage", str(tmp_path)], message, monkeypatch, capsys)


def known_study(space: Path, folder: StudyFolder) -> int:
    """A study of three trials that ended in no time, as the beginning of another; how many."""
    content = load_space(str(space))
    spec = dataclasses.replace(spec_of(content, RANDOM, 3), space=str(space))
    trials = spec.trials(content, 0, {})
    for trial in trials:
        end(folder.trial(trial.key), trial)
    kept(folder, spec)
    return len(trials)


@pytest.mark.slow
def test_a_killed_optuna_search_goes_on(joined: Home) -> None:
    """With Ray and MLflow, warmly started, one at once: resumed, it has the trials that it would have had."""
    space = joined.space("ranged", {"all": {"training.lr": "LR", "loss.n_samples": [2, 4]}}, LONG)
    text = space.read_text().replace("'LR'", "log_uniform(1e-4, 1e-2)")
    space.write_text(text.replace("import SearchSpace", "import log_uniform, SearchSpace"))
    n_known = known_study(space, joined.study("known"))
    folder = joined.study("s")

    def ended() -> dict[str, Any]:
        results = {trial.key: trial.result() for trial in folder.trials()}
        return {key: result for key, result in results.items() if result and not result.reused_from}

    options = ["--space", space, "--scale", "smoke", "--search", "optuna", "--trials", "3", "--warm-start", "known"]
    grid = joined.start(*options, "--name", "s", *ONE_WORKER)
    wait_for(lambda: joined.n_reports("s"), "a trial has reports")
    workers = joined.hold_when(
        lambda: ended() and any(t.rows() and t.result() is None for t in folder.trials()),
        "a trial has ended, another has reports",
    )
    grid.kill()
    go_on(workers)
    wait_for(lambda: not joined.workers(), "the workers follow their driver")
    before, n_begun = ended(), len(list(folder.trials()))
    assert n_known + 1 <= n_known + len(before) < n_begun < n_known + 3
    assert f"({n_known + 3} trials, {n_known} known)" in grid.said
    joined.run("--resume", "s", *INLINE)
    check_records(folder, joined.storage)
    assert all(folder.trial(key).result() == result for key, result in before.items())
    study = optuna.load_study(study_name="s", storage=f"sqlite:///{folder.path / DATABASE}")
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * (n_known + 3)
    found = summary_of(folder)
    assert study.best_value == found["best"]["mean"][METRIC]
    assert len(found["stages"]["all"]) == n_known + 3

    # Undisturbed, in this process, it would have proposed the same.
    shutil.copytree(joined.study("known").path, joined.path / "calm" / "known")
    calm = Driver(load_space(str(space)), StudySpec.read(folder), joined.path / "calm" / "s")
    while (trial := calm.proposer.next()) is not None:
        shutil.copytree(folder.trial(trial.key).path, calm.folder.trial(trial.key).path, dirs_exist_ok=True)
    assert calm.keys == [trial.user_attrs["trial"] for trial in study.trials]


@pytest.mark.slow
def test_a_grid_with_asha_and_then_one_without(joined: Home) -> None:
    """With Ray and MLflow: what was stopped is recorded as such, and no later grid takes it for finished."""
    base = {**BASE, "training.n_batches": 36, "training.eval_every": 2, "training.phases": "joint"}
    space = joined.space("rates", {"grid": {"training.lr": [3e-3, 1e-3, 1e-8]}}, base)
    options = ["--space", space, "--scale", "smoke"]
    joined.run(*options, "--name", "asha", "--scheduler", "asha", *ONE_WORKER)
    folder = joined.study("asha")
    results = {trial.key: trial.result() for trial in folder.trials()}
    early = {key for key, result in results.items() if result is not None and result.status is Status.STOPPED}
    assert len(results) == 3
    assert early
    runs = {run.data.tags["pcl.trial"]: run for run in Records(joined.storage, "asha").runs("trial")}
    for key, found in runs.items():
        assert found.info.status == ("KILLED" if key in early else "FINISHED")
        assert ("pcl.stopped_early" in found.data.tags) == (key in early)
        assert ("objective" in found.data.metrics) == (key not in early)
    assert summary_of(folder)["best"]["key"] not in early

    said = joined.run(*options, "--name", "grid", *INLINE).said
    assert f"(3 trials, {3 - len(early)} known)" in said
    assert all(entry["status"] == "finished" for entry in summary_of(joined.study("grid"))["stages"]["grid"])
