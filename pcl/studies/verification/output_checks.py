"""Invariants of a study's result files: they agree with its trials' folders."""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from pcl.config.user_files import portable
from pcl.metrics.undefined import as_json
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.results.selection import Outcome
from pcl.studies.space.trial import REPLICATE_STAGE
from pcl.studies.verification.problem import Problem, Remedy

_COLUMNS = {"trial", "stage", "seed", "status", "cause"}  # of trials.csv, before axes and metrics


def output_problems(folder: StudyFolder, outcomes: Mapping[str, Outcome]) -> list[Problem]:
    """Return what is wrong with a study's result files; a study that has not ended may have none.

    Args:
        folder: The study.
        outcomes: Outcomes by key, as the trials' folders have them.
    """
    checks = {"summary.json": _summary, "trials.csv": _table, "best.yaml": _best}
    problems = []
    for name, check in checks.items():
        path = folder.path / name
        if path.exists():
            try:
                problems += [Problem(str(path), what, Remedy.RESUME) for what in check(path, outcomes)]
            except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
                problems.append(Problem(str(path), "cannot be read", Remedy.RESUME))
    return problems


def _summary(path: Path, outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    content = json.loads(path.read_text())
    for entries in [*content["stages"].values(), content["report"]]:
        keys = [entry["key"] for entry in entries]
        for key in sorted({key for key in keys if keys.count(key) > 1}):
            yield f"has the trial {key} twice in a stage"
        for entry in entries:
            if entry["status"] != "not run":
                yield from _differences(entry, outcomes.get(entry["key"]))
    if content["best"] is not None:
        yield from _differences({**content["best"], "mean": {}}, outcomes.get(content["best"]["key"]))


def _differences(entry: Mapping[str, Any], outcome: Outcome | None) -> Iterator[str]:
    key = entry["key"]
    if outcome is None or outcome.result is None:
        yield f"has a result of the trial {key}, whose folder has none"
    elif entry["status"] != outcome.result.status.value:
        yield f"says that the trial {key} is {entry['status']}, but its folder {outcome.result.status.value}"
    else:
        wrong = [name for name, mean in entry["mean"].items() if not _is_close(mean, as_json(outcome.mean(name)))]
        if wrong:
            yield f"has another {wrong[0]} of the trial {key} than its folder"


def _is_close(one: float | None, other: float | None) -> bool:
    """Compare up to rounding: versions may sum in different orders."""
    return one == other if one is None or other is None else math.isclose(one, other, rel_tol=1e-9)


def _table(path: Path, outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if rows and not set(rows[0]) >= _COLUMNS:
        raise ValueError("other columns")
    # A stage may have a trial of an earlier one, and several stages the same replicate.
    names = [(row["stage"], row["trial"], row["seed"]) for row in rows if row["stage"] != REPLICATE_STAGE]
    for stage, trial, seed in sorted({name for name in names if names.count(name) > 1}):
        yield f"has the trial {trial} seed {seed} twice in the stage {stage}"
    for row in rows:
        name, seed, outcome = f"{row['trial']} seed {row['seed']}", int(row["seed"]), outcomes.get(row["trial"])
        if row["status"] == "not run":
            continue
        if outcome is None or outcome.result is None:
            if outcome is None or seed not in outcome.failures:  # a seed may fail before its trial ends
                yield f"has a result of the trial {name}, whose folder has none"
            continue
        metrics = outcome.by_seed.get(seed, {})
        wrong = [metric for metric, value in metrics.items() if row.get(metric) != str(value)]
        if wrong:
            yield f"has another {wrong[0]} of the trial {name} than its folder"


def _best(path: Path, outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    config = yaml.safe_load(path.read_text())
    if all(portable(config) != portable(outcome.trial.config) for outcome in outcomes.values()):
        yield "is the configuration of no trial of the study"
