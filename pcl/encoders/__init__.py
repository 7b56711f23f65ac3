"""Networks from inputs to posteriors: `encoder(x)` returns a `VonMisesFisher`."""

from pcl.encoders.base import Encoder, EncoderConfig, Inputs
from pcl.encoders.mlp import Backbone, Hidden, KappaLink, KappaRange, KappaWidth, MlpEncoder, StackedMlp
from pcl.encoders.resnet import Head, KappaPhase, Precision, ResNetEncoder

__all__ = [
    "Backbone",
    "Encoder",
    "EncoderConfig",
    "Head",
    "Hidden",
    "Inputs",
    "KappaLink",
    "KappaPhase",
    "KappaRange",
    "KappaWidth",
    "MlpEncoder",
    "Precision",
    "ResNetEncoder",
    "StackedMlp",
]
