"""MCInfoNCE beside the certainties of the pretrained classifier itself: softmax entropy, feature norm, a constant.

    python launch/ablate.py --ablation uncertainty_baselines

Hardware, time, result: one H200, CIFAR-10H, five folds. Under `reference`, 331 s for MCInfoNCE while others trained
and 20 s for the classifier, computed separately with these settings and one backbone. Under `exact`, the whole
ablation from each of five backbones: 71 to 81 s, and once 207 s on a busier GPU. On test images (docs/results.md and
docs/exact.md have paired differences):

| | entropy correlation | crop correlation | Recall@1 | area by rejection |
|---|---|---|---|---|
| MCInfoNCE | 0.348 | 0.719 | 0.877 | |
| softmax entropy | 0.337 | 0.546 | 0.912 | |
| feature norm | 0.259 | 0.470 | 0.912 | |
| MCInfoNCE, `--fidelity exact` | 0.349 | 0.589 | 0.903 | 0.981 |
| softmax entropy, from the same backbones | 0.327 | 0.567 | 0.912 | 0.988 |
| feature norm, likewise | 0.222 | 0.498 | 0.912 | 0.972 |

On the embedded set (`--data embedded --scale quick --fidelity paper`, two busy ARM cores, 5:25 with pretraining, seeds
4 to 6) the classifier is ahead. For MCInfoNCE, softmax and norm: entropy 0.447, 0.606 and 0.550, crops 0.319, 0.516 and
0.345; standard errors are 0.01 to 0.03.

All variants have the same folds, crops and backbone. A classifier's mu is the direction of its last features. Only its
unit of kappa is trained, for one batch because a run has at least one; no metric depends on it. A constant has no rank,
so its correlations are undefined; its Recall@1 is that of the features.
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
