"""How much work a trial is beside others of its study."""

from itertools import pairwise

from pcl.encoders.mlp import Hidden, KappaWidth
from pcl.studies.trial import Trial

# As many weights take as long as all else in a batch: 0.75 million where three seeds train at `quick` on one ARM
# core (from D' = 4 to 128), more on a GPU, to which small networks are nothing.
_ELSE = 1e6
_RESNET_18 = 11e6  # weights at a width of 64, most of them products of two widths


def work_of(trial: Trial) -> float:
    """Batches times the weights of all seeds, with a floor for what a batch is without them.

    In no unit of time. Samples, negatives and evaluations are left out: 32 drawn negatives make a batch of images take
    seven times as long as none, D' = 128 one of the controlled experiment a hundred times as long as D' = 8.
    """
    config = trial.config
    return float(config["training.n_batches"]) * (_ELSE + len(trial.seeds) * _n_weights(trial))


def _n_weights(trial: Trial) -> float:
    """About how many numbers one seed's networks have."""
    config = trial.config
    if config["task_name"] == "images":
        return _RESNET_18 * (float(config["encoder.width"]) / 64) ** 2
    dim, dim_x = float(config["encoder.dim"]), float(config["task.dim_x"])
    sizes = [dim_x, *(width * dim for width in Hidden(config["encoder.hidden"]).widths), dim]
    n_wide = 2 if config["encoder.kappa_width"] == KappaWidth.AS_MU.value else 1
    return n_wide * sum(n_in * n_out for n_in, n_out in pairwise(sizes))
