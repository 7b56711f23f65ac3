"""Networks from inputs to posteriors: `encoder(x)` returns a `VonMisesFisher`."""

from pcl.encoders.base import Encoder
from pcl.encoders.mlp import Backbone, Hidden, KappaLink, KappaRange, KappaWidth, MlpEncoder, StackedMlp
from pcl.encoders.resnet import Head, KappaPhase, Precision, ResNetEncoder

__all__ = [
    "Backbone",
    "Encoder",
    "Head",
    "Hidden",
    "KappaLink",
    "KappaPhase",
    "KappaRange",
    "KappaWidth",
    "MlpEncoder",
    "Precision",
    "ResNetEncoder",
    "StackedMlp",
]
