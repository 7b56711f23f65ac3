"""MCInfoNCE on your own images: 8 cells of dimension, kappa_pos and learning rate, trained from scratch.

    python launch/grid.py --space images_mcinfonce --data path/to/folder

A folder has no training images apart from its folds, so networks start from scratch: images are cropped and flipped at
random, and the learning rate warms up and falls. Negatives are drawn from all images under every profile. One network
learns mu and kappa together. A `votes.csv` in the folder makes soft labels. `--weights FILE` starts from a backbone
instead.

Hardware, time, result: not yet run at full length. On a CPU the scale is `quick`, which is too short to learn from
scratch: after 48 batches of 16 on 1,000 embedded images (seed 1), crop correlations of the validation images range
from 0.18 to 0.36, but Recall@1 is at chance, 0.08 to 0.12 of ten classes. Use a GPU, `--weights` or features.
"""

from pcl.studies.space import Objective, SearchSpace, Stage, tied_axis

SPACE = SearchSpace(
    name="images_mcinfonce",
    loss="mc_info_nce",
    task="images",
    base={
        "task.labels": "soft",
        "task.augmentation": "crop_flip",
        "task.negative_pool": "all",
        "task.negative_weights": "not_of_class",
        "encoder.sampler": "exact",
        "encoder.sampler_gradient": "exact",
        "training.lr_schedule": "warm_up_cosine",
        "training.phases": "joint",
    },
    stages=(
        Stage(
            "grid",
            {
                "encoder.dim": (8, 16),
                "kappa_pos": tied_axis(16, 32, paths=("loss.kappa_pos", "encoder.head_gain")),
                "training.lr": (1e-4, 1e-3),
            },
        ),
    ),
    objective=Objective("val/crop_rank_corr"),
)
