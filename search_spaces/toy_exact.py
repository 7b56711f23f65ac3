"""The recipe of the profile `exact`: learning rate, Monte-Carlo samples K and the share of joint training.

    python launch/grid.py --space toy_exact --fidelity exact --scale paper

Tuned on the seeds 1, 2 and 3; `--finalize` reports the best on the fresh seeds 9 to 28. The objective is the kappa
error: a rank correlation says nothing about the size of kappa. The best constant kappa has an error of 2.2.

Hardware, time, result: one H200, kappa MAE of the seeds 1, 2 and 3, trained cell by cell before this file was written,
with `loss.log_mean=plain`. The grid as a whole is not yet run.

| lr | K | phases | batches | kappa MAE | mean |
|---|---|---|---|---|---|
| 1e-3 | 16 | mu kappa joint:4 | 15,000 | 0.41 0.45 0.56 | 0.47 |
| 1e-3 | 64 | mu kappa joint:4 | 15,000 | 0.37 0.34 0.40 | 0.37 |
| 3e-3 | 16 | mu kappa joint:4 | 15,000 | 0.38 0.39 0.53 | 0.43 |
| 3e-3 | 32 | mu kappa joint:4 | 15,000 | 0.336 0.314 0.375 | 0.342 |
| 3e-3 | 32 | mu kappa joint:2 | 15,000 | 0.379 0.354 0.366 | 0.366 |
| 3e-3 | 32 | mu kappa joint:8 | 15,000 | 0.322 0.310 0.370 | 0.334 |
| 3e-3 | 64 | mu kappa joint:4 | 15,000 | 0.321 0.302 0.333 | 0.319 |
| 1e-2 | 16 | mu kappa joint:4 | 15,000 | 0.372 0.409 0.455 | 0.412 |
| 1e-2 | 32 | mu kappa joint:4 | 15,000 | 0.324 0.357 0.364 | 0.348 |
| 1e-2 | 64 | mu kappa joint:4 | 15,000 | 0.337 0.342 0.294 | 0.324 |
| 5e-3 | 32 | mu kappa joint:4 | 9,000 | 0.412 0.301 0.428 | 0.380 |
| 1e-2 | 32 | mu kappa joint:4 | 9,000 | 0.360 0.298 0.381 | 0.346 |
| 2e-2 | 32 | mu kappa joint:4 | 9,000 | 0.396 0.289 0.400 | 0.362 |
| 1e-2 | 64 | mu kappa joint:4 | 5,000 | 0.393 0.356 0.401 | 0.383 |

On other batches, the same cell and seed differ by up to 0.09. Three seeds therefore do not separate learning rates from
3e-3 to 1e-2, nor joint shares from 2 to 8; more samples help. The recipe is the best row of 9,000 batches, with
`loss.log_mean=corrected`: 0.366 0.294 0.335 where, on the same day, the plain estimate had 0.408 0.255 0.393. Five
seeds of it train in 20 and 28 s on two machines with an H200.
"""

from pcl.studies.space import Mode, Objective, SearchSpace, Stage

SPACE = SearchSpace(
    name="toy_exact",
    loss="mc_info_nce",
    stages=(
        Stage("grid", {
            "training.lr": (3e-3, 1e-2),
            "loss.n_samples": (16, 32, 64),
            "training.phases": ("mu kappa joint:2", "mu kappa joint:4", "mu kappa joint:8"),
        }),
    ),
    objective=Objective("eval/kappa_mae", Mode.MIN),
    report_seeds=tuple(range(9, 29)),
)  # fmt: skip
