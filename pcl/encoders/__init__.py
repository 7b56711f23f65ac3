"""Networks from inputs to posteriors: `encoder(x)` returns a `VonMisesFisher`."""

from pcl.encoders.base import Encoder
from pcl.encoders.mlp import Backbone, KappaLink, KappaRange, KappaWidth, MlpEncoder, StackedMlp
from pcl.encoders.resnet import ResNetEncoder

__all__ = [
    "Backbone",
    "Encoder",
    "KappaLink",
    "KappaRange",
    "KappaWidth",
    "MlpEncoder",
    "ResNetEncoder",
    "StackedMlp",
]
