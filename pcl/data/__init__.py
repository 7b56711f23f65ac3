"""Labelled images: CIFAR-10H, a synthetic set, the user's own; their cache, folds and pretrained backbones."""

from pcl.data.download import Unreachable
from pcl.data.embedded import Embedded, embedded, write_sheet
from pcl.data.folds import N_FOLDS, Split, folds, split
from pcl.data.images import SIDE, ImageSet, cache_file, load, save
from pcl.data.sources import cached, fetch, resolve, take

__all__ = [
    "N_FOLDS",
    "SIDE",
    "Embedded",
    "ImageSet",
    "Split",
    "Unreachable",
    "cache_file",
    "cached",
    "embedded",
    "fetch",
    "folds",
    "load",
    "resolve",
    "save",
    "split",
    "take",
    "write_sheet",
]
