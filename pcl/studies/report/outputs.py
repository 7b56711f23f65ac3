"""Files of a study: the ranked table, best.yaml, trials.csv, summary.json, and figures of the winner."""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from pcl.config.run_config import Plain
from pcl.data.sources import data_folder, resolve
from pcl.metrics.names import KAPPA_MAE, MAIN_METRICS, VAL_RECALL, plain_name
from pcl.metrics.undefined import as_json, told_with_error
from pcl.presentation.text_tables import aligned
from pcl.storage.files import first_line, write_json, write_text
from pcl.storage.installation import command
from pcl.studies.ledger.folders import CHECKPOINT, StudyFolder
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.results.pareto import values_of
from pcl.studies.results.replication import SEEDS_A_ROUND, Replication, described
from pcl.studies.results.selection import Outcome
from pcl.studies.results.yardsticks import SCALE_OFF, common_chance, common_constant_kappa_mae, is_scale_off
from pcl.studies.search.stages import Finding
from pcl.studies.space.labels import shown
from pcl.studies.space.search_space import Mode, SearchSpace
from pcl.training.trained_encoder import TrainedEncoder

_N_PAIRS = 2000  # points of the plot of mu


def table(outcomes: Sequence[Outcome], space: SearchSpace) -> list[str]:
    """Return a table of trials in a given order, with the means of the main metrics; failures with their causes.

    The last rows are yardsticks that trials must beat: the best constant kappa's error where all share a known truth,
    and Recall@1 by chance where all share the classes.
    """
    axes = list(dict.fromkeys(axis for outcome in outcomes for axis in outcome.trial.varied))
    metrics = [space.objective.metric, *(m for m in MAIN_METRICS if m != space.objective.metric)]
    metrics = [m for m in metrics if any(m in values for o in outcomes for values in o.by_seed.values())]
    rows = [["", *axes, *map(plain_name, metrics), "train s", ""]]
    for place, outcome in enumerate(outcomes, start=1):
        varied = outcome.trial.varied  # trials of an earlier stage lack the axes of later ones
        values = [shown(varied[axis]) if axis in varied else "" for axis in axes]
        is_published = space.published and all(space.published.get(axis) == value for axis, value in varied.items())
        note = "published winner" if is_published else ""
        if outcome.result is None:
            stopped = f"stopped at batch {outcome.batch}" if outcome.batch else "not run"
            rows.append(["-", *values, *("" for _ in metrics), "", stopped])
        elif outcome.is_stopped:
            rows.append(
                ["-", *values, *("" for _ in metrics), f"{outcome.seconds:.1f}", f"{outcome.cause} {note}".rstrip()]
            )
        elif not outcome.is_finished:
            rows.append(["-", *values, *("" for _ in metrics), "", f"FAILED: {outcome.cause} {note}".rstrip()])
        else:
            means = [_mean(outcome, metric) for metric in metrics]
            rank = str(place) if math.isfinite(outcome.mean(space.objective.metric)) else "-"
            lost = f"lost seeds ({outcome.cause})" if outcome.failures else ""
            notes = [lost, SCALE_OFF if is_scale_off(outcome) else "", note]
            rows.append([rank, *values, *means, f"{outcome.seconds:.1f}", ", ".join(filter(None, notes))])
    constant = common_constant_kappa_mae(outcome.trial for outcome in outcomes) if KAPPA_MAE in metrics else None
    if constant is not None:
        reached = [told_with_error(constant, math.nan) if metric == KAPPA_MAE else "" for metric in metrics]
        rows.append(["-", *("" for _ in axes), *reached, "", "the best constant kappa"])
    chance = common_chance(outcomes)
    if chance is not None:
        reached = [told_with_error(chance, math.nan) if metric == VAL_RECALL else "" for metric in metrics]
        rows.append(["-", *("" for _ in axes), *reached, "", "by chance"])
    return aligned(rows)


def _mean(outcome: Outcome, metric: str) -> str:
    """Format a mean with its standard error; empty where no seed has the metric."""
    return told_with_error(outcome.mean(metric), outcome.standard_error(metric)) if outcome.values(metric) else ""


def front_table(finding: Finding) -> list[str]:
    """Return a table of the Pareto front, sorted by the first objective."""
    metrics = [objective.metric for objective in finding.objectives]
    rows = [[*map(plain_name, metrics), ""]]
    for outcome in finding.front:
        rows.append([*(_mean(outcome, metric) for metric in metrics), outcome.trial.label])
    return aligned(rows)


def replication_table(stage: str, replication: Replication, space: SearchSpace) -> list[str]:
    """Return a table of a stage's best trials after replication."""
    if not replication.n_rounds:
        return [f"{stage}: clear without more seeds"]
    left = f"{replication.n_unclear} not clearly worse" if replication.n_unclear else "it is clear"
    head = f"{stage}: the best after {replication.n_rounds} rounds of {SEEDS_A_ROUND} more seeds; {left}"
    return [head, *described(replication, space.objective)]


def write_all(folder: StudyFolder, space: SearchSpace, spec: StudySpec, finding: Finding) -> list[Path]:
    """Write the study's files; return their paths."""
    files = [folder.path / "trials.csv", folder.path / "summary.json"]
    write_text(files[0], trials_csv([*finding.outcomes, *finding.replicates]))
    write_json(files[1], summary(space, spec, finding))
    if finding.best is not None:
        files.append(folder.path / "best.yaml")
        write_text(files[-1], _best_yaml(finding, finding.best, folder.name))
    if finding.front:
        files.append(folder.path / "pareto.png")
        _draw_front(finding, files[-1])
    return files


def _draw_front(finding: Finding, path: Path) -> None:
    from pcl.studies.report.figures import pareto  # noqa: PLC0415  Matplotlib takes half a second

    metrics = [objective.metric for objective in finding.objectives]
    found = [o for o in finding.outcomes if o not in finding.report and values_of(o, finding.objectives)]
    points = [[outcome.mean(metric) for metric in metrics] for outcome in found]
    on_front = {outcome.trial.key for outcome in finding.front}
    names = [f"{o.metric} ({'larger' if o.mode is Mode.MAX else 'smaller'} is better)" for o in finding.objectives]
    is_first_max = finding.objectives[0].mode is Mode.MAX
    pareto(points, [outcome.trial.key in on_front for outcome in found], names, path, is_first_max)


def summary(space: SearchSpace, spec: StudySpec, finding: Finding) -> dict[str, Any]:
    """Return the study as JSON."""
    return {
        "spec": spec.as_json(),
        "objective": space.objective.as_json(),
        "objectives": [objective.as_json() for objective in finding.objectives],
        "pareto": [_entry(outcome) for outcome in finding.front],
        "published_winner": dict(space.published),
        "best": _entry(finding.best) if finding.best else None,
        "stages": {name: [_entry(outcome) for outcome in outcomes] for name, outcomes in finding.stages.items()},
        "replication": {name: _replication(found) for name, found in finding.replications.items()},
        "report": [_entry(outcome) for outcome in finding.report],
        "best_constant_kappa_mae": common_constant_kappa_mae(
            outcome.trial for outcomes in finding.stages.values() for outcome in outcomes
        ),
    }


def _replication(found: Replication) -> dict[str, Any]:
    behind = [{"mean": as_json(d.mean), "half_width": as_json(d.half_width), "seeds": d.n_seeds}
              for d in found.differences]  # fmt: skip
    compared = [{**_entry(o), "seeds": list(o.by_seed)} for o in found.compared]
    return {"rounds": found.n_rounds, "unclear": found.n_unclear, "compared": compared, "behind_the_best": behind}


def figures(folder: StudyFolder, best: Outcome, say: Callable[[str], None]) -> list[Path]:
    """Draw the winner's figures; return their files or folder. A failure is reported in one line."""
    try:
        if best.trial.run_config.experiment.has_images:
            return _look(folder, best)
        return _scatter_plots(folder, best)
    except Exception as error:  # results stand even if drawing fails
        say(f"the winner is not drawn: {first_line(error)}")
        return []


def _look(folder: StudyFolder, best: Outcome) -> list[Path]:
    """Write the page of `launch/look.py` for the winner's first seed that has not failed."""
    from pcl.studies.inspection.images import of_winner, write_look  # noqa: PLC0415  Matplotlib too

    source = of_winner(folder, best.trial.key)
    trained = TrainedEncoder.read(source.checkpoint, device="cuda" if torch.cuda.is_available() else "cpu")
    images = resolve(trained.task.data, data_folder(), side=trained.task.side)
    write_look(source, trained, images, is_other=False, output=source.output)
    return [source.output]


def _scatter_plots(folder: StudyFolder, best: Outcome) -> list[Path]:
    """Plot kappa, pairs of mu and coverage of the winner's first seed; nothing without its checkpoint or a truth."""
    trial = folder.trial(best.trial.key)
    trial.mirror.pull(CHECKPOINT)
    checkpoint = trial.checkpoint
    if not checkpoint.exists():
        return []
    from pcl.studies.report.figures import reliability, scatter  # noqa: PLC0415  Matplotlib takes half a second
    from pcl.studies.report.predictions import LEVELS, Predictions  # noqa: PLC0415  with the figures

    found = Predictions.read(checkpoint)
    if found is None:
        return []
    paths = [folder.path / "kappa.png", folder.path / "mu.png"]
    scatter(found.kappa_true.numpy(), found.kappa.numpy(), f"kappa, seed {found.seed}", paths[0])
    first, second = torch.randint(len(found.mu), (2, _N_PAIRS), generator=torch.Generator().manual_seed(0))
    true, predicted = ((mu[first] * mu[second]).sum(-1).numpy() for mu in (found.mu_true, found.mu))
    scatter(true, predicted, f"mu_i.mu_j, seed {found.seed}", paths[1])
    if found.covered is not None:
        paths.append(folder.path / "coverage.png")
        reliability(LEVELS, found.covered.numpy(), f"coverage, seed {found.seed} (n = {len(found.mu):,})", paths[-1])
    return paths


def _entry(outcome: Outcome) -> dict[str, Any]:
    metrics = sorted({metric for values in outcome.by_seed.values() for metric in values})
    return {
        "key": outcome.trial.key,
        "varied": outcome.trial.varied,
        "seeds": list(outcome.trial.seeds),
        "status": outcome.result.status.value if outcome.result else "not run",
        "cause": outcome.cause,
        "seconds": as_json(outcome.seconds),
        "mean": {metric: as_json(outcome.mean(metric)) for metric in metrics},
        "standard_error": {metric: as_json(outcome.standard_error(metric)) for metric in metrics},
    }


def trials_csv(outcomes: Sequence[Outcome]) -> str:
    """Return a line for every trial and seed; undefined values are nan, infinite ones inf."""
    metrics = sorted({metric for o in outcomes for values in o.by_seed.values() for metric in values})
    axes = list(dict.fromkeys(axis for o in outcomes for axis in o.trial.varied))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "stage", "seed", "status", "cause", *axes, *metrics])
    for outcome in outcomes:
        varied = [outcome.trial.varied.get(axis, "") for axis in axes]
        for seed in outcome.trial.seeds:
            values = outcome.by_seed.get(seed, {})
            cause = str(outcome.failures.get(seed, outcome.result.cause if outcome.result else ""))
            is_failed = bool(cause) and not outcome.is_stopped
            status = "failed" if is_failed else outcome.result.status.value if outcome.result else "not run"
            row = [outcome.trial.key, outcome.trial.stage, seed, status, cause, *varied]
            writer.writerow([*row, *(values.get(metric, "") for metric in metrics)])
    return text.getvalue()


def _best_yaml(finding: Finding, best: Outcome, study: str) -> str:
    varied: Mapping[str, Plain] = best.trial.varied
    head = f"# The winner of the study {study}: {', '.join(f'{a} = {shown(v)}' for a, v in varied.items())}.\n"
    if len(finding.objectives) > 1:
        others = ", ".join(objective.metric for objective in finding.objectives[1:])
        head += f"# It is the best by {finding.objectives[0].metric}; for {others} see the Pareto front.\n"
    return f"{head}# {command('train')} --config best.yaml\n{yaml.safe_dump(best.trial.config, sort_keys=False)}"
