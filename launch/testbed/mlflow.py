"""A study's records in MLflow, counted."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pcl.metrics.names import TRAIN_LOSS
from pcl.studies.tracking.tags import EXPERIMENTS, RunKind, RunState, Tag

if TYPE_CHECKING:
    from pcl.studies.ledger.folders import StudyFolder


def count(uri: str, folder: "StudyFolder", keys: Sequence[str]) -> tuple[int, int]:
    """Count the runs and reports of a study that MLflow has twice, and those that it lacks, by trial keys and folders.

    A trial has one finished run; any other run of it, even one left by a killed driver, is too many.
    """
    from pcl.studies.tracking.store import Store  # noqa: PLC0415  -h answers at once

    store = Store(uri)
    all_runs = store.find(store.experiments(EXPERIMENTS), {Tag.STUDY: folder.name, Tag.KIND: RunKind.TRIAL})
    runs = [run for run in all_runs if run.info.status == RunState.FINISHED]
    recorded, finished = (Counter(run.data.tags[Tag.TRIAL] for run in some) for some in (all_runs, runs))
    expected = Counter(keys)
    duplicates, missing = (recorded - expected).total(), (expected - finished).total()
    for run in runs:
        history = store.call(lambda client, run=run: client.get_metric_history(run.info.run_id, TRAIN_LOSS))  # type: ignore[misc]
        steps = Counter(point.step for point in history)
        rows = Counter(row.batch for row in folder.trial(run.data.tags[Tag.TRIAL]).rows())
        duplicates += (steps - rows).total()
        missing += (rows - steps).total()
    return duplicates, missing
