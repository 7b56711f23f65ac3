"""Where the recipe `exact` holds: one thing changed at a time, with the coverage of its credible caps.

    python launch/ablate.py --ablation exact_limits --fidelity exact --seeds 4,5,6

It varies estimate, samples, batches, candidates, dimensions, truths and the loss's kappa_pos, which is 20 in the truth.
The recipe's learning rate is too high for many dimensions, which also run with a lower one. For the profile `exact`
only.

Hardware, time, result: one H200, 506 and 695 s for all, four at a time, seeds 4 to 6. The recipe holds for batches of
64 to 1,024, 64 to 4,096 candidates and 4 to 32 dimensions (with the lower rate): kappa MAE 0.2 to 1.3, ranks from 0.90,
mean coverage within 2 points of nominal. At D = 64 and on clear inputs, kappa is recovered but the caps are too small.
The recipe fails at D = 2 and 128, from D = 32 on at its own rate, for Laplace and unsmoothed truths, and, if kappa_pos
is wrong or learned, in the size of kappa. docs/exact.md has every seed.
"""

from pcl.studies.space import Ablation, Variant


def dims(dim: int, **others: float) -> Variant:
    """Return a variant with other dimensions of latents, inputs and encoder."""
    sizes: dict[str, float] = {"task.dim": dim, "task.dim_x": dim, "encoder.dim": dim}
    return Variant({**sizes, **{f"training.{name}": value for name, value in others.items()}})


ABLATION = Ablation(
    name="exact_limits",
    question="Where does the recipe hold?",
    axis="changed",
    baseline="nothing",
    variants={
        "nothing": Variant(),
        "plain estimate": Variant({"loss.log_mean": "plain"}),
        "8 samples": Variant({"loss.n_samples": 8}),
        "batches of 64": Variant({"training.batch_size": 64}),
        "batches of 256": Variant({"training.batch_size": 256}),
        "batches of 1024": Variant({"training.batch_size": 1024}),
        "64 candidates": Variant({"training.n_negatives": 64}),
        "256 candidates": Variant({"training.n_negatives": 256}),
        "D = 2": dims(2),
        "D = 4": dims(4),
        "D = 6": dims(6),
        "D = 8": dims(8),
        "D = 16": dims(16),
        "D = 32": dims(32),
        "D = 32, lr 3e-3": dims(32, lr=3e-3),
        "D = 64": dims(64),
        "D = 64, lr 1e-3": dims(64, lr=1e-3),
        "D = 128, lr 1e-3": dims(128, lr=1e-3),
        "D = 128, lr 3e-4": dims(128, lr=3e-4),
        "kappa 64 to 128": Variant({"task.kappa_min": 64, "task.kappa_max": 128}),
        "Gaussian truth": Variant({"task.family": "gaussian"}),
        "Laplace truth": Variant({"task.family": "laplace"}),
        "unsmoothed truth": Variant({"task.smoothing": "none"}),
        "kappa_pos = 15": Variant({"loss.kappa_pos": 15}),
        "kappa_pos = 25": Variant({"loss.kappa_pos": 25}),
        "kappa_pos learned": Variant({"loss.learn_kappa_pos": True}),
        "4096 candidates": Variant({"training.n_negatives": 4096}),
    },
    metrics=(
        "eval/kappa_mae", "eval/kappa_rank_corr", "eval/kappa_slope", "eval/coverage_50", "eval/coverage_90",
        "eval/coverage_95", "eval/mu_rank_corr",
    ),
)  # fmt: skip
