"""Studies of searches without Ray: spaces, and a driver that runs what is proposed in no time."""

import json
import math
from pathlib import Path
from typing import Any

import optuna

from pcl.config.failure import Failure, FailureKind
from pcl.storage.mirror import UNMIRRORED
from pcl.studies.ledger.folders import Result, Row, Status, StudyFolder, TrialFolder
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.results.pareto import with_objectives
from pcl.studies.search.optuna_study import DATABASE
from pcl.studies.search.proposals import Proposer
from pcl.studies.space.ranges import integers, log_uniform, uniform
from pcl.studies.space.search_method import OPTUNA, Method
from pcl.studies.space.search_space import SearchSpace, Stage, negatives_axis
from pcl.studies.space.trial import Trial
from tests.support.spaces import make

METRIC, OTHER = "eval/kappa_rank_corr", "eval/mu_mae"
RANGES = {"training.lr": log_uniform(1e-4, 1e-2), "M": negatives_axis(0, 1, 4), "loss.n_samples": integers(1, 64)}
RANGED = make(stages=(Stage("ranges", RANGES),))
GRID = make(stages=(Stage("grid", {"M": negatives_axis(0, 1, 4), "loss.kappa_pos": tuple(range(10, 20))}),))
SMALL = make(stages=(Stage("grid", {"M": negatives_axis(0, 1, 4), "loss.kappa_pos": (11, 14)}),))
STAGED = make(stages=(Stage("one", {"loss.kappa_pos": (1, 2, 3)}), Stage("two", {"training.lr": uniform(0.1, 1)})))


def spec_of(space: SearchSpace, kind: str = OPTUNA, n: int = 12, seed: int = 0, **more: Any) -> StudySpec:
    sampler = {"sampler": more.pop("sampler", "tpe")} if kind == OPTUNA else {}
    method = Method(kind, (n,) * len(space.stages), seed, warm_start=more.pop("warm_start", ""), **sampler)
    return StudySpec("x", space.fingerprint(), "reference", "smoke", tuning_seeds=(1,), method=method, **more)


def end(folder: TrialFolder, trial: Trial, status: Status = Status.FINISHED) -> None:
    """As a worker would, in no time: a smooth function of the configuration."""
    lr, n = float(trial.config["training.lr"]), float(trial.config["loss.n_samples"])
    kappa_pos, n_negatives = float(trial.config["loss.kappa_pos"]), float(trial.config["training.n_negatives"])
    value = -((math.log10(lr) + 3) ** 2) - (n - 20) ** 2 / 1000 - (kappa_pos - 14) ** 2 / 100 - n_negatives / 1000
    folder.begin(trial)
    token = folder.claim()
    folder.publish(Row(8, 8, 1, 0.1, {1: {METRIC: value, OTHER: n / 64 + lr, "train/loss": -value}}, {}), token)
    folder.end(Result(status, None if status is Status.FINISHED else Failure(FailureKind.WORKER_DIED, "killed")), token)


class Driver:
    """A study without Ray: proposals are run one after the other, or several at once."""

    def __init__(self, space: SearchSpace, spec: StudySpec, path: Path, stage: int = 0, **winner: Any) -> None:
        self.folder = StudyFolder(path, winner.pop("mirror", UNMIRRORED))
        path.mkdir(parents=True, exist_ok=True)
        _, objectives = with_objectives(space, spec.objectives)
        self.known: list[str] = []
        self.ran: list[Trial] = []
        is_rerun = winner.pop("is_rerun", False)
        self.proposer = Proposer(
            space, spec, self.folder, stage, winner.get("winner", {}), objectives, lambda _: None,
            lambda folder: self.known.append(folder.key), is_rerun=is_rerun,
        )  # fmt: skip

    def run(self, n: int = 10**6, at_once: int = 1) -> "Driver":
        """Until `n` trials have ended, or there are no more."""
        running: list[Trial] = []
        while len(self.ran) < n:
            while len(running) < at_once and (trial := self.proposer.next()) is not None:
                assert trial not in running
                running.append(trial)
            if not running:
                break
            trial = running.pop(0)
            self.ran.append(trial)
            end(self.folder.trial(trial.key), trial)
        for trial in self.proposer.trials:
            self.proposer.ended(trial.key)
        return self

    @property
    def keys(self) -> list[str]:
        return [trial.key for trial in self.proposer.trials]

    def optuna(self, name: str = "") -> optuna.Study:
        url = f"sqlite:///{self.folder.path / DATABASE}"
        return optuna.load_study(study_name=name or self.folder.name, storage=url)


def kept(folder: StudyFolder, spec: StudySpec) -> StudyFolder:
    (folder.path / "study.json").write_text(json.dumps(spec.as_json()))
    return folder
