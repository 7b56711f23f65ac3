"""Relative work of a trial among others of its study."""

from itertools import pairwise

from pcl.encoders.mlp import Hidden, KappaWidth
from pcl.studies.space.trial import Trial

# This many weights take as long as the rest of a batch: measured on one ARM core with three seeds at `quick` from D' =
# 4 to 128; on an H200 with D = 16 and D = 48 at `paper`. On a GPU, small networks cost nothing.
_ELSE_ON_CPU, _ELSE_ON_GPU = 1e6, 6e6
_RESNET_18 = 11e6  # weights at a width of 64, most of them products of two widths


def work_of(trial: Trial, is_on_gpu: bool) -> float:
    """Return anchors times the weights of all seeds, with a floor for the rest of a batch.

    The unit is not time. Samples, negatives and evaluations are left out: 32 drawn negatives make a batch of images
    take seven times as long as none.
    """
    n_anchors = float(trial.config["training.n_batches"]) * float(trial.config["training.batch_size"])
    return n_anchors * ((_ELSE_ON_GPU if is_on_gpu else _ELSE_ON_CPU) + len(trial.seeds) * _n_weights(trial))


def _n_weights(trial: Trial) -> float:
    """Return about how many weights one seed's networks have."""
    config = trial.config
    if config["task_name"] == "images":
        return _RESNET_18 * (float(config["encoder.width"]) / 64) ** 2
    dim, dim_x = float(config["encoder.dim"]), float(config["task.dim_x"])
    sizes = [dim_x, *(width * dim for width in Hidden(config["encoder.hidden"]).widths), dim]
    n_wide = 2 if config["encoder.kappa_width"] == KappaWidth.AS_MU.value else 1
    return n_wide * sum(n_in * n_out for n_in, n_out in pairwise(sizes))
