"""Probabilistic contrastive learning: exact mathematics, losses and training for probabilistic embeddings.

Importing this package imports nothing else: a name is loaded on first use.

    import pcl

    study = pcl.search("toy_mcinfonce", scale="quick")
    study.trials                            # a DataFrame, the best trial first
    posterior = study.best.encoder()(x)     # a VonMisesFisher: mu and kappa of every input
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pcl.config.run_config import RunConfig
    from pcl.distributions import VonMisesFisher
    from pcl.losses import ELK, HIB, InfoNCE, MCInfoNCE
    from pcl.studies.api.calls import ablate, search
    from pcl.studies.api.loaded_encoder import load_encoder
    from pcl.studies.api.study import Study, open_study
    from pcl.studies.space.ablation import Ablation, Variant
    from pcl.studies.space.axes import Stage, Variants
    from pcl.studies.space.ranges import integers, log_uniform, uniform
    from pcl.studies.space.search_space import Mode, Objective, SearchSpace
    from pcl.training.diverged import Diverged
    from pcl.training.run import Run

__version__ = "0.1.0"

# Name -> module that defines it.
_MODULES = {
    "Ablation": "studies.space.ablation",
    "Diverged": "training.diverged",
    "ELK": "losses",
    "HIB": "losses",
    "InfoNCE": "losses",
    "MCInfoNCE": "losses",
    "Mode": "studies.space.search_space",
    "Objective": "studies.space.search_space",
    "Run": "training.run",
    "RunConfig": "config.run_config",
    "SearchSpace": "studies.space.search_space",
    "Stage": "studies.space.axes",
    "Study": "studies.api.study",
    "Variant": "studies.space.ablation",
    "Variants": "studies.space.axes",
    "VonMisesFisher": "distributions",
    "ablate": "studies.api.calls",
    "integers": "studies.space.ranges",
    "load_encoder": "studies.api.loaded_encoder",
    "log_uniform": "studies.space.ranges",
    "open_study": "studies.api.study",
    "search": "studies.api.calls",
    "uniform": "studies.space.ranges",
}

__all__ = [
    "ELK", "HIB", "Ablation", "Diverged", "InfoNCE", "MCInfoNCE", "Mode", "Objective", "Run", "RunConfig",
    "SearchSpace", "Stage", "Study", "Variant", "Variants", "VonMisesFisher", "ablate", "integers", "load_encoder",
    "log_uniform", "open_study", "search", "uniform",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Load one of the names above."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
