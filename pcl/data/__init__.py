"""Labelled images: CIFAR-10H, a synthetic set, the user's own; their cache, folds and pretrained backbones."""

from pcl.data.download import Unreachable
from pcl.data.embedded import embedded, write_sheet
from pcl.data.folds import folds, split
from pcl.data.images import ImageSet, cache_file, load, save
from pcl.data.sources import cached, fetch, resolve, take

__all__ = [
    "ImageSet",
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
