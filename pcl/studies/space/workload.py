"""Relative work of a trial among others of its study."""

from pcl.studies.space.trial import Trial

# This many weights take as long as the rest of a batch: measured on one ARM core with three seeds at `quick` from D' =
# 4 to 128.
_REST_ON_CPU = 1e6
# The same on an H200 (D = 10 to 64 at `paper`), once per batch and once per seed. The part per seed is for 512 anchors
# and grows with them; for these networks, the time per weight does not.
_REST_OF_BATCH_ON_GPU, _REST_OF_SEED_ON_GPU = 1.7e7, 9e6
# Work of a trial besides its batches: 7 s on an H200 for five folds of images, whose batches of `exact` take 49 s.
_REST_OF_TRIAL_ON_GPU = 1.2e10


def work_of(trial: Trial, is_on_gpu: bool) -> float:
    """Return the work of a trial, in a unit that is not time.

    Samples, negatives and evaluations are left out: 32 drawn negatives make a batch of images take seven times as long
    as none.
    """
    config, n_seeds = trial.run_config, len(trial.seeds)
    n_weights = config.encoder.n_weights(config.task.inputs)
    batch_size = float(config.training.batch_size)
    if is_on_gpu:
        of_batch = _REST_OF_BATCH_ON_GPU + n_seeds * (_REST_OF_SEED_ON_GPU * batch_size / 512 + n_weights)
        return _REST_OF_TRIAL_ON_GPU + config.training.n_batches * of_batch
    return config.training.n_batches * batch_size * (_REST_ON_CPU + n_seeds * n_weights)
