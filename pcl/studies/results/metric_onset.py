"""First batch from which a metric is meaningful: a kappa metric says nothing while only mu is trained.

A metric is judged from the start of the first phase that trains what the metric is about. Trainings are compared by the
share of their batches from there to the end.
"""

import math
from collections.abc import Sequence

from pcl.config.run_config import RunConfig
from pcl.config.schedule import Keep, Trained
from pcl.metrics.names import TRAIN_LOSS, VAL_RECALL
from pcl.metrics.undefined import mean_of
from pcl.studies.ledger.folders import Metrics, Row

_OF_MU = ("eval/mu_", VAL_RECALL)


def judged_from(config: RunConfig, metric: str) -> int:
    """Return the start of the first phase that trains what the metric is about; the last batch if none does.

    Each phase has another loss, so only the last phase's loss counts.
    """
    training = config.training
    starts = [0, *training.phases.ends(training.n_batches)]
    if metric == TRAIN_LOSS:
        return starts[-2]
    idle = Trained.KAPPA if metric.startswith(_OF_MU) else Trained.MU
    judged = (start for start, phase in zip(starts, training.phases, strict=False) if phase.trained is not idle)
    return next(judged, training.n_batches)


def judged_curve(rows: Sequence[Row], config: RunConfig, metric: str) -> list[tuple[float, float]]:
    """Return percent done and the metric's mean over seeds for every meaningful report before the last.

    A report whose mean is undefined or infinite is left out.

    A run that ends with its best evaluation (images: by the crops' correlation) is judged by its best so far.
    """
    first, last = judged_from(config, metric), config.training.n_batches
    selects = config.experiment.task.selects if config.training.keep is Keep.BEST else ""
    best: dict[int, Metrics] = {}
    curve = []
    for row in rows:
        if not first < row.batch < last:
            continue
        for seed, metrics in row.by_seed.items():
            if not selects or metrics[selects] > best.get(seed, {}).get(selects, -math.inf):
                best[seed] = metrics
        values = [metrics[metric] for seed, metrics in best.items() if seed not in row.failures and metric in metrics]
        if math.isfinite(mean := mean_of(values)):
            curve.append((100 * (row.batch - first) / (last - first), mean))
    return curve
