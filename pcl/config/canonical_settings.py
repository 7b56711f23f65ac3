"""One spelling for every setting: `1e-3` and `0.001`, `true` and `True`, `1_000` and `1000` are the same study."""

from collections.abc import Mapping, Sequence
from typing import Any

from pcl.config.run_config import EXPERIMENTS, Plain, RunConfig
from pcl.losses import LOSSES


def canonical_settings(values: Mapping[str, Any], own: Sequence[RunConfig] = ()) -> dict[str, Plain]:
    """Return settings as the plain values of their types, by path.

    A path means the same in every built-in configuration that has it. Unknown paths and invalid values stay unchanged:
    building a configuration from them raises the error.

    Args:
        values: Settings as given or recorded.
        own: Configurations to try before the built-in ones, such as those with a user's own loss.

    Example:
        >>> canonical_settings({"training.lr": "1e-3", "loss.n_samples": "1_000"})
        {'training.lr': 0.001, 'loss.n_samples': 1000}
    """
    ours = [RunConfig.of(loss=loss, task=task) for task in EXPERIMENTS for loss in LOSSES] if values else []
    return {path: _canonical(path, value, [*own, *ours]) for path, value in values.items()}


def _canonical(path: str, value: Any, readers: list[RunConfig]) -> Plain:
    for reader in readers:
        if path in reader.paths():
            try:
                return reader.read(path, value)
            except ValueError:
                break
    return value  # type: ignore[no-any-return]
