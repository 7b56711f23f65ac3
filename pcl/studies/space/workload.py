"""Relative work of a trial among others of its study."""

from pcl.studies.space.trial import Trial

# This many weights take as long as the rest of a batch: measured on one ARM core with three seeds at `quick` from D' =
# 4 to 128; on an H200 with D = 16 and D = 48 at `paper`. On a GPU, small networks cost nothing.
_ELSE_ON_CPU, _ELSE_ON_GPU = 1e6, 6e6


def work_of(trial: Trial, is_on_gpu: bool) -> float:
    """Return anchors times the weights of all seeds, with a floor for the rest of a batch.

    The unit is not time. Samples, negatives and evaluations are left out: 32 drawn negatives make a batch of images
    take seven times as long as none.
    """
    config = trial.run_config
    n_anchors = float(config.training.n_batches) * float(config.training.batch_size)
    n_weights = config.encoder.n_weights(config.task.inputs)
    return n_anchors * ((_ELSE_ON_GPU if is_on_gpu else _ELSE_ON_CPU) + len(trial.seeds) * n_weights)
