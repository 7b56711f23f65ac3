"""Networks from inputs to posteriors: `encoder(x)` returns a `VonMisesFisher`."""

from pcl.encoders.base import Encoder, EncoderConfig, Inputs
from pcl.encoders.classifier import Certainty, ClassifierEncoder
from pcl.encoders.mlp import Backbone, KappaLink, MlpEncoder, StackedMlp
from pcl.encoders.resnet import Head, Precision, ResNetEncoder

# Encoders that a configuration can name; an experiment's default needs no name.
ENCODERS: dict[str, type[Encoder]] = {"classifier": ClassifierEncoder}

__all__ = [
    "ENCODERS",
    "Backbone",
    "Certainty",
    "ClassifierEncoder",
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
