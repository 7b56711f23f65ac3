"""`bench.py predict`: a row for each kind of input and batch, of models that answer."""

import pytest

from launch.benchmarks import predict


@pytest.mark.parametrize(
    ("through", "kind", "side"), [("pyfunc", "PNG", 32), ("pyfunc", "pixels", 48), ("TrainedEncoder", "tensor", 32)]
)
def test_a_kind_of_input_is_measured(through: str, kind: str, side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "_BATCHES", (1, 3))
    rows = predict.measure_input(through, kind, side, 32, 2, 0, "cpu")
    assert [(row["through"], row["input"], row["input_side"], row["batch"]) for row in rows] == [
        (through, kind, side, 1), (through, kind, side, 3),
    ]  # fmt: skip
    assert all(row["images_per_s"] > 0 and row["peak_mib"] > 1 for row in rows)
