"""Relative work of a trial among others of its study."""

from pcl.studies.space.trial import Trial

# This many weights take as long as the rest of a batch: measured on one ARM core with three seeds at `quick` from D' =
# 4 to 128.
_REST_ON_CPU = 1e6
# The same on an H200 (D = 10 to 48 at `paper`), once per batch and once more per seed. The part per seed is for 512
# anchors and grows with them; for these networks, the time per weight does not.
_REST_ON_GPU = 1e7
# Set-up and the last evaluation of a trial take as long as this many batches: of images, five folds, on an H200.
_REST_OF_TRIAL = 42


def work_of(trial: Trial, is_on_gpu: bool) -> float:
    """Return the work of a trial, in a unit that is not time.

    Samples, negatives and evaluations are left out: 32 drawn negatives make a batch of images take seven times as long
    as none.
    """
    config, n_seeds = trial.run_config, len(trial.seeds)
    n_weights = config.encoder.n_weights(config.task.inputs)
    batch_size = float(config.training.batch_size)
    if is_on_gpu:
        of_batch = _REST_ON_GPU + n_seeds * (_REST_ON_GPU * batch_size / 512 + n_weights)
    else:
        of_batch = batch_size * (_REST_ON_CPU + n_seeds * n_weights)
    return (config.training.n_batches + _REST_OF_TRIAL) * of_batch
