"""Every kind of damage to a study's records is found, named, and mended by the remedy that is told."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from copy import copy
from pathlib import Path

import pytest

import pcl
from launch.verify import main
from pcl.storage.locks import process_lock
from pcl.storage.mirror import mirror_of
from pcl.studies.ledger.folders import LOCK, StudyFolder
from pcl.studies.tracking.store import Store, default_uri
from pcl.studies.verification.problem import Problem, Remedy
from pcl.studies.verification.verifier import Verification, verify
from tests.support.commands import called
from tests.support.services import SHORT

EXPECTED_SECONDS = 20

SPACE = pcl.SearchSpace(
    "mine", "mc_info_nce", (pcl.Stage("grid", {"loss.n_samples": (2, 4)}),), SHORT, tuning_seeds=(1, 2),
    report_seeds=(4,),
)  # fmt: skip


def searched(storage: Path) -> pcl.Study:
    return pcl.search(SPACE, scale="smoke", seeds=(1, 2), storage=storage, name="first", say=lambda _: None)


def verified(storage: Path) -> Verification:
    return verify(StudyFolder(storage / "first"), Store(default_uri(storage)))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("sound")
    searched(storage)
    assert verified(storage) == Verification("first", 2, 2, ())
    return storage


class Records:
    """A copy of a sound study that a test may damage."""

    def __init__(self, storage: Path) -> None:
        self.storage, self.study = storage, storage / "first"
        first, second = sorted((self.study / "trials").iterdir())
        self.trial, self.other = first, second

    @property
    def of_other(self) -> "Records":
        """The same, where the other trial is damaged."""
        found = copy(self)
        found.trial, found.other = self.other, self.trial
        return found

    def edit(self, path: Path, change: Callable[[str], str]) -> None:
        text = path.read_text()
        assert change(text) != text
        path.write_text(change(text))

    def edit_json(self, path: Path, change: Callable[[object], object]) -> None:
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    def sql(self, statement: str) -> None:
        connection = sqlite3.connect(self.storage / "mlflow.db")
        with connection:
            assert connection.execute(statement).rowcount > 0
        connection.close()

    def run_of(self, kind: str) -> str:
        tagged = "select run_uuid from tags where key = '{}' and value = '{}'"
        of_trial = "" if kind == "study" else f" intersect {tagged.format('pcl.trial', self.trial.name)}"
        return f"(select run_uuid from ({tagged.format('pcl.kind', kind)}{of_trial}) order by 1 limit 1)"

    def doubled(self, table: str, kind: str, columns: str) -> None:
        self.sql(f"insert into {table} select {columns} from {table} where run_uuid = {self.run_of(kind)}")


@pytest.fixture
def records(sound: Path, tmp_path: Path) -> Records:
    shutil.copytree(sound, tmp_path / "runs")
    return Records(tmp_path / "runs")


def _second_run(records: Records) -> None:
    records.sql(
        "insert into runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status, start_time, "
        "end_time, source_version, lifecycle_stage, artifact_uri, experiment_id) select 'again', name, source_type, "
        "source_name, entry_point_name, user_id, status, start_time + 9, end_time, source_version, lifecycle_stage, "
        f"artifact_uri, experiment_id from runs where run_uuid = {records.run_of('trial')}"
    )
    records.sql(f"insert into tags select key, value, 'again' from tags where run_uuid = {records.run_of('trial')}")


DAMAGE: dict[str, tuple[Callable[[Records], object], str, Remedy]] = {
    "unfinished write": (lambda r: (r.trial / "x.tmp").touch(), "was being written", Remedy.RESUME),
    "torn result": (lambda r: r.edit(r.trial / "result.json", lambda t: t[:9]), "cannot be read", Remedy.RESUME),
    "lost trial.json": (lambda r: (r.trial / "trial.json").unlink(), "has no trial.json", Remedy.RESUME),
    "edited trial": (
        lambda r: r.edit_json(r.trial / "trial.json", lambda c: {**c, "seeds": [1, 3]}),  # type: ignore[dict-item]
        "was edited", Remedy.DELETE,
    ),
    "half reopened": (
        lambda r: r.edit_json(r.trial / "result.json", lambda _: {"status": "reopened"}),
        "is to run again", Remedy.RESUME,
    ),
    "lost last report": (
        lambda r: r.edit_json(r.trial / "reports.json", lambda rows: rows[:-1]),  # type: ignore[index]
        "no report of its last batch", Remedy.RESUME,
    ),
    "doubled report": (
        lambda r: r.edit_json(r.trial / "reports.json", lambda rows: [*rows, rows[-1]]),  # type: ignore[misc,index]
        "two reports of one batch", Remedy.RETRAIN,
    ),
    "lost seed": (
        lambda r: r.edit_json(
            r.trial / "reports.json",
            lambda rows: [{**rows[0], "by_seed": {"1": rows[0]["by_seed"]["1"]}}, *rows[1:]],  # type: ignore[index,misc]
        ),
        "without one of its seeds", Remedy.RETRAIN,
    ),
    "flipped checkpoint": (lambda r: _flip(r.trial / "checkpoint.pt"), "is damaged", Remedy.RETRAIN),
    "foreign checkpoint": (
        lambda r: shutil.copy(r.other / "checkpoint.pt", r.trial), "is of another trial", Remedy.RETRAIN,
    ),
    "lost checkpoint": (lambda r: (r.trial / "checkpoint.pt").unlink(), "its encoder is lost", Remedy.RETRAIN),
    "torn summary": (lambda r: r.edit(r.study / "summary.json", lambda t: t[:-9]), "cannot be read", Remedy.RESUME),
    "stale summary": (
        lambda r: r.edit(r.study / "summary.json", lambda t: t.replace('"finished"', '"failed"', 1)),
        "but its folder finished", Remedy.RESUME,
    ),
    "stale table": (
        lambda r: r.edit(r.study / "trials.csv", lambda t: t + t.splitlines(keepends=True)[-1]), "twice", Remedy.RESUME,
    ),
    "foreign best.yaml": (
        lambda r: r.edit(r.study / "best.yaml", lambda t: t.replace("n_samples", "n_sample")),
        "of no trial", Remedy.RESUME,
    ),
    "lost database": (lambda r: (r.storage / "mlflow.db").unlink(), "does not exist", Remedy.RESUME),
    "study left running": (
        lambda r: r.sql(f"update runs set status = 'RUNNING' where run_uuid = {r.run_of('study')}"),
        "nobody works on it", Remedy.RESUME,
    ),
    "trial left running": (
        lambda r: r.sql(f"update runs set status = 'RUNNING' where run_uuid = {r.run_of('trial')}"),
        "but the trial's folder says otherwise", Remedy.RESUME,
    ),
    "deleted run": (
        lambda r: r.sql(f"update runs set lifecycle_stage = 'deleted' where run_uuid = {r.run_of('trial')}"),
        "is not recorded", Remedy.RESUME,
    ),
    "second run": (_second_run, "a second run", Remedy.RESUME),
    "lost point": (
        lambda r: r.sql(f"delete from metrics where step = 2 and run_uuid = {r.run_of('trial')}"),
        "lacks reports", Remedy.RERECORD,
    ),
    "changed value": (
        lambda r: r.sql(f"update metrics set value = value + 1 where step = 2 and run_uuid = {r.run_of('seed')}"),
        "other values", Remedy.RERECORD,
    ),
    "added point": (
        lambda r: r.doubled("metrics", "seed", "key, value, timestamp + 1, run_uuid, step, is_nan"),
        "reports that its folder lacks", Remedy.RERECORD,
    ),
    "changed parameter": (
        lambda r: r.sql(f"update params set value = '7' where key = 'seeds' and run_uuid = {r.run_of('trial')}"),
        "other parameters", Remedy.RERECORD,
    ),
    "orphan": (lambda r: shutil.rmtree(r.trial), "a trial that has no folder", Remedy.ORPHAN),
}  # fmt: skip


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(records: Records, name: str) -> None:
    damage, told, remedy = DAMAGE[name]
    damage(records)
    found = verified(records.storage)
    assert (told, remedy) in [(told, p.remedy) for p in found.problems if told in p.what], found.problems
    assert not found.is_sound


# Damage to one trial and to the other that is mended at once, where none hides another: what a trial's folder lacks is
# not looked for in MLflow.
MENDED_BY_RESUMING = [
    (("unfinished write", "stale summary", "study left running", "deleted run"), ()),
    (("foreign best.yaml", "trial left running"), ("half reopened",)),
    (("stale table", "second run"), ("torn result",)),
    (("lost trial.json", "torn summary"), ("lost last report",)),
    (("lost database",), ()),
]
MENDED_OTHERWISE = [
    (("edited trial",), ("doubled report",)),
    (("lost seed",), ("flipped checkpoint",)),
    (("foreign checkpoint",), ("lost checkpoint",)),
    (("orphan",), ("lost point", "changed value", "changed parameter")),
    (("added point",), ()),
]
Names = tuple[str, ...]


def test_each_remedy_is_tried() -> None:
    tried = [{name for pair in pairs for names in pair for name in names}
             for pairs in (MENDED_BY_RESUMING, MENDED_OTHERWISE)]  # fmt: skip
    resumed = {name for name, (*_, remedy) in DAMAGE.items() if remedy is Remedy.RESUME}
    assert tried == [resumed, DAMAGE.keys() - resumed]


def damaged(records: Records, names: Names, of_other: Names) -> tuple[Problem, ...]:
    """Damage records in several ways, each of which is seen."""
    for name in names:
        DAMAGE[name][0](records)
    for name in of_other:
        DAMAGE[name][0](records.of_other)
    problems = verified(records.storage).problems
    for name in names + of_other:
        _, told, remedy = DAMAGE[name]
        assert any(told in problem.what and problem.remedy is remedy for problem in problems), (name, problems)
    return problems


@pytest.mark.parametrize(("names", "of_other"), MENDED_BY_RESUMING)
def test_resuming_mends_what_it_is_said_to_mend(records: Records, names: Names, of_other: Names) -> None:
    problems = damaged(records, names, of_other)
    assert all(problem.remedy is Remedy.RESUME for problem in problems)
    searched(records.storage)
    assert verified(records.storage).is_sound, verified(records.storage).problems


@pytest.mark.parametrize(("names", "of_other"), MENDED_OTHERWISE)
def test_other_remedies_mend_what_they_are_said_to_mend(records: Records, names: Names, of_other: Names) -> None:
    problems = damaged(records, names, of_other)
    for problem in problems:
        if problem.remedy is Remedy.DELETE:
            Path(problem.where).unlink()
        elif problem.remedy in (Remedy.RERECORD, Remedy.ORPHAN):
            run_id = problem.where.split()[2]
            records.sql(f"update runs set lifecycle_stage = 'deleted' where run_uuid = '{run_id}'")
        elif problem.remedy is Remedy.RETRAIN:
            (trial,) = [trial for trial in (records.trial, records.other) if trial.name in problem.where]
            shutil.rmtree(trial, ignore_errors=True)
    searched(records.storage)
    assert verified(records.storage).is_sound, verified(records.storage).problems


def test_the_command_says_what_is_wrong_of_a_study_a_storage_or_all(records: Records) -> None:
    how = ("--storage", str(records.storage))
    for words in (("first", *how), how, (str(records.study),), (str(records.storage),)):
        sound = called("launch/verify.py", main, *words)
        assert (sound.returncode, sound.stderr) == (0, "")
        assert sound.stdout.startswith("first: sound (2 trials, 2 ended")
    (records.trial / "x.tmp").touch()
    broken = called("launch/verify.py", main, "first", *how)
    assert broken.returncode == 1
    assert "1 problems, of which resuming repairs 1" in broken.stdout
    (found,) = json.loads(called("launch/verify.py", main, "--json", *how).stdout)
    assert (found["sound"], [problem["remedy"] for problem in found["problems"]]) == (False, ["resume"])
    for words in (("other", *how), (str(records.trial),), ("--storage", str(records.trial))):
        refused = called("launch/verify.py", main, *words)
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1


def test_a_study_in_a_store_needs_no_checkpoints_here(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCL_CACHE", str(records.storage / "cache"))
    store = Store(default_uri(records.storage))
    copy = records.storage / "copy" / "first"
    folder = StudyFolder(copy, mirror_of(copy, records.study.as_uri()))
    assert verify(folder, store).is_sound
    assert not list(copy.rglob("checkpoint.pt"))
    (records.trial / "checkpoint.pt").unlink()
    (problem,) = verify(folder, store).problems
    assert (problem.what, problem.remedy) == ("is missing: its encoder is lost", Remedy.RETRAIN)


def test_a_trial_may_be_in_two_stages(tmp_path: Path) -> None:
    """As the winner of one is among the cells of the next."""
    stages = (pcl.Stage("one", {"loss.n_samples": (2,)}), pcl.Stage("two", {"training.phases": ("mu kappa", "joint")}))
    space = pcl.SearchSpace("mine", "mc_info_nce", stages, SHORT, tuning_seeds=(1,), report_seeds=(4,))
    pcl.search(space, scale="smoke", storage=tmp_path, name="first", say=lambda _: None)
    assert verified(tmp_path) == Verification("first", 2, 2, ())


def test_a_study_that_somebody_works_on_is_not_judged(records: Records) -> None:
    with process_lock(records.study / LOCK), pytest.raises(ValueError, match="at work"):
        verified(records.storage)
