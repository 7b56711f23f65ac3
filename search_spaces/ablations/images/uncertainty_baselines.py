"""MCInfoNCE beside the certainties of the pretrained classifier itself: softmax entropy, feature norm, a constant.

    python launch/ablate.py --ablation uncertainty_baselines

Hardware, time, result: not yet run on CIFAR-10H. On the embedded set (`--data embedded --scale quick --fidelity paper`,
two busy ARM cores, 5:25 with pretraining, seeds 4 to 6) the classifier is ahead: the entropy correlation of the test
images is 0.606 for the softmax, 0.550 for the norm and 0.447 for MCInfoNCE, that of crops 0.516, 0.345 and 0.319;
standard errors are 0.01 to 0.03.

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
        "test/entropy_rank_corr", "test/crop_rank_corr", "test/recall_at_1", "val/entropy_rank_corr",
        "val/crop_rank_corr", "val/recall_at_1",
    ),
)  # fmt: skip
