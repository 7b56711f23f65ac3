"""Paths and names that are known without torch: those of the classes and registries themselves."""

from enum import Enum

import pytest

from launch.shared.common_flags import PARTS
from pcl.config.dotted_paths import check_values, declared_paths
from pcl.config.run_config import EXPERIMENTS, RunConfig
from pcl.encoders import ENCODERS
from pcl.losses import LOSSES


def test_the_source_declares_the_paths_and_types_of_all_configurations() -> None:
    runs = [RunConfig.of(loss=loss, task=task) for loss in LOSSES for task in EXPERIMENTS]
    runs += [RunConfig.of(task="images", encoder=encoder) for encoder in ENCODERS]
    real = {path: kind for run in runs for path, kind in run.paths().items()}
    declared = declared_paths()
    assert set(declared) == set(real)
    checked = {path: kind for path, kind in declared.items() if kind is not object}
    assert len(checked) > 0.9 * len(declared)
    assert {path: _choices(kind) for path, kind in checked.items()} == {p: _choices(real[p]) for p in checked}


def _choices(kind: type) -> object:
    return [member.value for member in kind] if issubclass(kind, Enum) else kind


def test_values_of_every_configuration_pass() -> None:
    for task in EXPERIMENTS:
        flat = RunConfig.of(task=task, profile="reference").flat()
        check_values({path: str(value) for path, value in flat.items() if "." in path})


@pytest.mark.parametrize("path", ["loss.n_sample", "n_samples", "task.sampler.x"])
def test_unknown_paths_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="Unknown path"):
        check_values({path: "1"})


def test_an_empty_path_is_refused_without_a_list_of_all() -> None:
    with pytest.raises(ValueError, match="must have a path") as found:
        check_values({"": "1"})
    assert len(str(found.value)) < 100


def test_flags_know_the_names_of_the_registries() -> None:
    assert {"task": tuple(EXPERIMENTS), "loss": tuple(LOSSES), "encoder": tuple(ENCODERS)} == PARTS
