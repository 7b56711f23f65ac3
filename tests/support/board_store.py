"""A store as studies leave it, written by the service's own writer from trial folders; without Ray, which is slow."""

import itertools
import sqlite3
import uuid
from pathlib import Path

from pcl.config.failure import Failure, FailureKind
from pcl.config.run_config import RunConfig
from pcl.studies.ledger.folders import Result, Row, Status, TrialFolder, now_ms
from pcl.studies.paper.published import published_tables
from pcl.studies.report.figures import scatter
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.run_content import Winner
from pcl.studies.tracking.store import default_uri
from pcl.studies.tracking.tracker import End, StudyTags, Tracker

OBJECTIVE = "eval/kappa_rank_corr"
NASTY = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
CAUSE = "kappa ran away: above 1e6"


def tags(space: str) -> StudyTags:
    return StudyTags(space, "smoke", "reference", OBJECTIVE, "toy", "c0ffee", "10c4", "CPU x86_64")


def score(shift: float, seed: int, batch: int = 12) -> float:
    """The objective of a seed; a shift is worth more to some seeds than to others."""
    return shift * (1 + seed / 20) + seed**2 / 100 + batch / 1000


def error(shift: float, seed: int) -> float:
    """The mean absolute error of kappa."""
    return 3 - shift * (1 - seed / 5) + seed / 7


class Writer:
    """Studies in a store of its own.

    Args:
        folder: Of the store and of trials' folders.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uri = default_uri(folder)
        self.tracker = Tracker(self.uri)

    def trial(
        self, n_samples: int, seeds: tuple[int, ...], shift: float, *, label: str = "", stage: str = "grid",
        n_reports: int = 3, failures: dict[int, Failure] | None = None,
    ) -> TrialFolder:  # fmt: skip
        """A trial with reports, whose metrics tell seed, batch and shift."""
        config = RunConfig.of({"loss.n_samples": n_samples}, profile="reference", scale="smoke").flat()
        return self.begun(Trial(config, seeds, stage, {"n_samples": label or n_samples}), shift, n_reports, failures)

    def begun(
        self, trial: Trial, shift: float, n_reports: int = 3, failures: dict[int, Failure] | None = None
    ) -> TrialFolder:
        folder = TrialFolder(self.folder / "trials" / uuid.uuid4().hex / trial.key)
        folder.begin(trial)
        token = folder.claim()
        for batch in range(4, 4 * n_reports + 1, 4):
            by_seed = {
                seed: {
                    OBJECTIVE: score(shift, seed, batch), "eval/kappa_mae": error(shift, seed),
                    "eval/mu_rank_corr": 0.9, "train/loss": 1.0 / batch, "time/train_s": 2.5,
                }
                for seed in trial.seeds
            }  # fmt: skip
            folder.publish(Row(batch, 12, now_ms() + batch, 2.5, by_seed, failures or {}), token)
        return folder

    def study(
        self, name: str, ended: list[TrialFolder], failed: dict[TrialFolder, str], best: float, *artifacts: Path
    ) -> str:
        """A study that is over, with these artifacts."""
        parent = self.tracker.open_study(name, tags("toy_space"))
        for folder in ended:
            folder.close(Result(Status.FINISHED, hardware="NVIDIA H200"))
            self.tracker.sync(folder)
        for folder, cause in failed.items():
            folder.close(
                Result(Status.FAILED, Failure(FailureKind.ERROR, cause), "Traceback ...", hardware="CPU x86_64")
            )
            self.tracker.sync(folder)
        for path in artifacts:
            self.tracker.log_artifact(parent, path)
        winner = min(ended, key=lambda folder: abs(folder.rows()[-1].metrics[OBJECTIVE] - best))
        self.tracker.summarize(Winner(winner.trial(), {"best/objective": best}, "a table"))
        self.tracker.close_study(End.FINISHED)
        return parent

    def grid(self, name: str) -> str:
        """A study that is over and crossed three settings of two values each."""
        folders = []
        for n_samples, kappa_pos, phases in itertools.product((1, 4), (10, 20), ("joint", "mu kappa")):
            varied = {"loss.n_samples": n_samples, "loss.kappa_pos": kappa_pos, "training.phases": phases}
            config = RunConfig.of(varied, profile="reference", scale="smoke").flat()
            shift = n_samples / 10 + kappa_pos / 1000
            folders.append(self.begun(Trial(config, (1,), "grid", dict(varied)), shift, n_reports=1))
        return self.study(name, folders, {}, score(0.42, 1, 4))

    def running(self, name: str) -> tuple[str, TrialFolder]:
        """A study with a trial that has reported once."""
        parent = self.tracker.open_study(name, tags("toy_space"))
        folder = self.trial(64, (1,), 0.4, n_reports=1)
        self.tracker.sync(folder)
        return parent, folder


def write_studies(folder: Path) -> dict[str, str]:
    """Studies that finished, failed in part, have names that are markup, are of the paper, and run; their runs."""
    writer = Writer(folder)
    figure = folder / "kappa.png"
    scatter([1.0, 2.0], [1.5, 2.5], "kappa", figure)
    seeds = (1, 2, 3)
    trials = [writer.trial(n, seeds, shift) for n, shift in ((1, 0.1), (5, 0.3), (16, 0.2), (8, 0.25))]
    lost = writer.trial(32, seeds, 0.9, failures={2: Failure(FailureKind.ERROR, "NaN in the loss")})
    bad = writer.trial(2, seeds, 0.0, n_reports=1)
    report = writer.trial(5, (4, 5), 0.28, stage="report")
    best = sum(score(0.3, seed) for seed in seeds) / 3
    found = {"whole": writer.study("whole", [*trials, lost, report], {bad: CAUSE}, best, figure)}
    nasty = [writer.trial(n, (1,), n / 100, label=f"{n}{NASTY}") for n in (1, 4)]
    found["nasty"] = writer.study(NASTY.replace("'", "`"), nasty, {writer.trial(2, (1,), 0.0): NASTY}, score(0.04, 1))
    row = published_tables()[0].rows[0]
    ours = writer.begun(Trial(row.config("reference", "smoke"), (4, 5, 6), "report", {"row": row.name}), 0.5)
    found["paper"] = writer.study("paper", [ours], {}, 1.0)
    found["running"] = writer.running("running")[0]
    return found


def write_many(database: Path, n_studies: int, n_trials: int) -> None:
    """Add runs to MLflow's own tables in bulk, which its client would take minutes for."""
    params = {path: str(value) for path, value in RunConfig.of({}, scale="smoke").flat().items()}
    metrics = (
        OBJECTIVE,
        "objective",
        "eval/kappa_mae",
        "eval/mu_rank_corr",
        "eval/mu_mae",
        "train/loss",
        "time/train_s",
        *(f"time/part_{part}_s" for part in range(7)),
    )
    connection = sqlite3.connect(database)
    connection.execute("pragma synchronous = off")
    ((experiment,),) = connection.execute("select experiment_id from experiments where name = 'pcl/toy_space'")
    runs, of_runs = [], []
    for number in range(n_studies):
        parent, name = f"{number:08x}{'f' * 24}", f"study_{number}"
        runs.append((parent, name, 10**12, experiment))
        common = {**tags("toy_space").as_tags(), "pcl.study": name}
        of_runs += [(parent, *tag) for tag in {**common, "pcl.kind": "study"}.items()]
        common |= {"pcl.kind": "trial", "pcl.stage": "grid", "mlflow.parentRunId": parent, "pcl.seed": "1"}
        for index in range(n_trials):
            run = f"{number:08x}{index:024x}"
            runs.append((run, f"lr={index}", 10**12 + index, experiment))
            of_runs += [(run, *tag) for tag in {**common, "pcl.trial": run[12:]}.items()]
    trials = [(run, name) for run, name, *_ in runs if name.startswith("lr")]
    connection.executemany(
        "insert into runs (run_uuid, name, status, start_time, end_time, lifecycle_stage, experiment_id) "
        "values (?1, ?2, 'FINISHED', ?3, ?3 + 1, 'active', ?4)", runs,
    )  # fmt: skip
    connection.executemany("insert into tags (run_uuid, key, value) values (?, ?, ?)", of_runs)
    connection.executemany(
        "insert into params (run_uuid, key, value) values (?, ?, ?)",
        ((run, *param) for run, name in trials for param in {**params, "training.lr": name[3:], "seeds": "1"}.items()),
    )
    connection.executemany(
        "insert into latest_metrics (run_uuid, key, value, timestamp, step, is_nan) values (?, ?, ?, ?, 8, 0)",
        ((run, metric, int(name[3:]) / n_trials, 10**12) for run, name in trials for metric in metrics),
    )
    connection.commit()
    connection.close()
