"""Searches that are killed while Optuna makes its database: the next start works."""

from pathlib import Path

import pytest

from tests.studies.tracking.test_first_start import STRIDES, n_aside
from tests.support.database_crashes import crashed

EXPECTED_SECONDS = 60


@pytest.mark.parametrize("stride", STRIDES)
def test_optuna_after_a_kill_at_any_step(stride: int, tmp_path: Path) -> None:
    points, _ = crashed("optuna", tmp_path, stride)
    assert len(points) * stride >= 24
    assert all(point["works"] for point in points)
    assert all(point["states"] == ["COMPLETE"] * 2 for point in points)
    assert not [name for point in points for name in point["names"] if name.startswith(".")]
    assert all(n_aside(point) == (point["case"] == "before") for point in points)
