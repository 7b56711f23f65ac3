"""Where training data come from and how encoders are judged."""

from pcl.tasks.base import Batch, Negatives, Task
from pcl.tasks.toy import AcceptanceConstant, Family, NegativeRule, PositiveRule, Smoothing, ToyTask

__all__ = [
    "AcceptanceConstant",
    "Batch",
    "Family",
    "NegativeRule",
    "Negatives",
    "PositiveRule",
    "Smoothing",
    "Task",
    "ToyTask",
]
