"""Networks from inputs to posteriors: `encoder(x)` returns a `VonMisesFisher`."""

from pcl.encoders.base import Encoder, EncoderConfig, Inputs
from pcl.encoders.mlp import Backbone, KappaLink, MlpEncoder, StackedMlp
from pcl.encoders.resnet import Head, Precision, ResNetEncoder

__all__ = [
    "Backbone",
    "Encoder",
    "EncoderConfig",
    "Head",
    "Inputs",
    "KappaLink",
    "MlpEncoder",
    "Precision",
    "ResNetEncoder",
    "StackedMlp",
]
