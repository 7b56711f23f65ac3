"""Probabilistic contrastive learning: exact mathematics, losses and training for probabilistic embeddings.

Importing this package imports nothing else: take what you need from its modules (`pcl.mathematics.special`,
`pcl.distributions`, `pcl.losses`, `pcl.training.run`). None of them imports Ray, MLflow or Optuna.
"""

__version__ = "0.1.0"


class Diverged(RuntimeError):
    """Every run of a training ended early; the message names the cause of each."""
