"""MCInfoNCE beside the certainties of the pretrained classifier itself: softmax entropy, feature norm, a constant.

    python launch/ablate.py --ablation uncertainty_baselines

Hardware, time, result: one H200, CIFAR-10H, five folds, 331 s for MCInfoNCE beside other trainings and 20 s for the
classifier, computed apart with these settings and one backbone. The entropy correlation of the test images is 0.348 for
MCInfoNCE, 0.337 for the softmax and 0.259 for the norm, that of crops 0.719, 0.546 and 0.470, and Recall@1 0.877 and
twice 0.912: docs/results.md has the paired differences.

With `--fidelity exact`, 12 s of training a fold, it has 0.361, 0.607 and 0.904 beside the softmax's 0.337, 0.547 and
0.912; from another backbone, and computed apart, too (docs/exact.md).

On the embedded set (`--data embedded --scale quick --fidelity paper`, two busy ARM cores, 5:25 with pretraining, seeds
4 to 6) the classifier is ahead: entropy 0.447, 0.606 and 0.550, crops 0.319, 0.516 and 0.345; standard errors are 0.01
to 0.03.

All have the same folds, crops and backbone. A classifier's mu is the direction of its last features; nothing of it is
trained but the unit of kappa, for one batch, as a run has at least one: no metric depends on it. A constant has no
rank, so that its correlations are undefined; its Recall@1 is that of the features.
"""

from pcl.studies.space import Ablation, Variant


def classifier(certainty: str) -> Variant:
    """Return the classifier with a certainty of its own."""
    one_batch: dict[str, str | int] = {"training.n_batches": 1, "training.eval_every": 1}
    return Variant({"encoder.certainty": certainty, **one_batch}, encoder="classifier")


ABLATION = Ablation(
    name="uncertainty_baselines",
    question="Is kappa a better certainty than what the pretrained classifier has already?",
    axis="certainty",
    baseline="MCInfoNCE",
    task="images",
    base={"task.labels": "soft", "loss.kappa_pos": 16},
    variants={
        "MCInfoNCE": Variant({"encoder.dim": 8, "encoder.head_gain": 16}),
        "softmax entropy": classifier("entropy"),
        "feature norm": classifier("norm"),
        "constant": classifier("constant"),
    },
    metrics=(
        "test/entropy_rank_corr", "test/crop_rank_corr", "test/recall_at_1", "test/rejection_area",
        "last/entropy_rank_corr", "last/crop_rank_corr", "last/recall_at_1", "last/rejection_area",
    ),
)  # fmt: skip
