"""Histories of metrics, batch by batch."""

import json
from collections import defaultdict
from collections.abc import Iterable

from dashboards.board.store.records import Run
from pcl.metrics.names import BEST_BATCH
from pcl.studies.tracking.database_file import LARGEST, Database
from pcl.studies.tracking.tags import RunKind, Tag

# Trials of these keys, each with its study and where its result is from
_OF_KEYS = f"""
    select r.run_uuid, t.value, s.value, o.value from runs r
    join tags k on k.run_uuid = r.run_uuid and k.key = '{Tag.KIND}' and k.value = '{RunKind.TRIAL}'
    join tags t on t.run_uuid = r.run_uuid and t.key = '{Tag.TRIAL}'
    join tags s on s.run_uuid = r.run_uuid and s.key = '{Tag.STUDY}'
    left join tags o on o.run_uuid = r.run_uuid and o.key = '{Tag.REUSED_FROM}'
    where r.lifecycle_stage = 'active' and t.value in (select value from json_each(?))
"""


def histories(database: Database, runs: Iterable[Run], metric: str) -> dict[str, list[tuple[int, float]]]:
    """Return steps and finite values of a metric, by run; a reused run has those of the run that was trained.

    A run that ends with its best evaluation reports it again at its last batch, to which it does not belong.
    """
    runs = list(runs)
    trained = _trained(database, runs)
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    identifiers = list(dict.fromkeys(trained.values()))
    for run_id, step, value, is_nan in database.histories(identifiers, metric) if identifiers else ():
        if not is_nan and abs(value) < LARGEST:
            found[run_id].append((step, value))
    best = {run.id: run.metrics.get(BEST_BATCH) for run in runs if metric.startswith("val/")}
    return {run: _as_trained(found[source], best.get(run)) for run, source in trained.items() if source in found}


def _as_trained(points: list[tuple[int, float]], best_batch: float | None) -> list[tuple[int, float]]:
    return points if best_batch in (None, points[-1][0]) else points[:-1]


def _trained(database: Database, runs: list[Run]) -> dict[str, str]:
    """Return the run that trained each run's result, as far as it is in the store; itself if it was not reused."""
    keys = {run.tags.get(Tag.TRIAL, "") for run in runs if run.tags.get(Tag.REUSED_FROM)}
    rows = database.rows(_OF_KEYS, json.dumps(sorted(keys))) if keys else []
    of_study = {(study, key): (run_id, origin or "") for run_id, key, study, origin in rows}
    found = {}
    for run in runs:
        source, origin, key = run.id, run.tags.get(Tag.REUSED_FROM, ""), run.tags.get(Tag.TRIAL, "")
        seen = {""}  # studies: none is asked twice, as two may name each other
        while origin not in seen and (origin, key) in of_study:
            seen.add(origin)
            source, origin = of_study[origin, key]
        found[run.id] = source
    return found
