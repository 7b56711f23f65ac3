"""Tasks: sources of training data and evaluations of encoders."""

from pcl.tasks.base import Batch, Negatives, Task, TaskConfig
from pcl.tasks.calibration import calibration_scan
from pcl.tasks.cifar import CifarTask, Labels, NegativePool, NegativeWeights
from pcl.tasks.features import FeatureTask
from pcl.tasks.toy import AcceptanceConstant, NegativeRule, PositiveRule, ToyTask
from pcl.tasks.truth import Family, Smoothing

__all__ = [
    "AcceptanceConstant",
    "Batch",
    "CifarTask",
    "Family",
    "FeatureTask",
    "Labels",
    "NegativePool",
    "NegativeRule",
    "NegativeWeights",
    "Negatives",
    "PositiveRule",
    "Smoothing",
    "Task",
    "TaskConfig",
    "ToyTask",
    "calibration_scan",
]
