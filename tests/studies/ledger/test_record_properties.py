"""Records of any content: they are read as they were written, and damaged ones are found, set aside and told."""

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcl.config.failure import Failure, FailureKind
from pcl.studies.ledger.folders import Damaged, Result, Row, Status, TrialFolder, now_ms
from pcl.studies.space.trial import Trial
from tests.support.properties import JSON, damaged, examples, places, replaced, without
from tests.support.smoke import smoke

WHOLE = st.integers(0, 2**62)
NAMES = st.text(max_size=6)
METRICS = st.dictionaries(NAMES, st.floats(), max_size=3)
FAILURES = st.builds(Failure, st.sampled_from(FailureKind), NAMES)
ROWS = st.builds(
    Row,
    WHOLE,
    WHOLE,
    WHOLE,
    st.floats(),
    st.dictionaries(WHOLE, METRICS, max_size=3),
    st.dictionaries(WHOLE, FAILURES, max_size=2),
)
RESULTS = st.builds(
    Result,
    st.sampled_from(Status),
    st.none() | FAILURES,
    NAMES,
    WHOLE,
    NAMES,
    st.floats(0, 1e6),
    NAMES,
    NAMES,
    st.none() | ROWS,
)
PLAIN = st.booleans() | st.integers() | st.floats(allow_nan=False) | NAMES
TRIALS = st.builds(
    Trial,
    st.dictionaries(NAMES, PLAIN, max_size=3),
    st.lists(WHOLE, max_size=3).map(tuple),
    NAMES,
    st.dictionaries(NAMES, PLAIN, max_size=2),
    NAMES,
)

TRIAL = Trial(smoke().flat(), (1, 2), "grid", {"loss.n_samples": 4})
REPORTS = [
    Row(
        batch,
        8,
        batch + 1,
        0.5,
        {seed: {"train/loss": math.nan, "eval/kappa_mae": 0.25} for seed in (1, 2)},
        {2: Failure(FailureKind.NAN, "at batch 4")},
    )
    for batch in (4, 8)
]
RESULT = Result(
    Status.FINISHED, Failure(FailureKind.ERROR, "no"), "Traceback", 3, "CPU", 1.5, "other", "node", REPORTS[1]
)
READERS: dict[str, Callable[[TrialFolder], Any]] = {
    "trial.json": TrialFolder.trial,
    "reports.json": TrialFolder.rows,
    "result.json": TrialFolder.result,
}


@pytest.fixture(autouse=True)
def _unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here asks what a power cut leaves."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def folder(tmp_path: Path) -> TrialFolder:
    """A trial that is whole."""
    return made_whole(TrialFolder(tmp_path / "trials" / TRIAL.key))


def made_whole(folder: TrialFolder) -> TrialFolder:
    for path in folder.path.glob("*"):
        path.unlink()
    folder.begin(TRIAL)
    token = folder.claim()
    for row in REPORTS:
        folder.publish(row, token)
    folder.end(RESULT, token)
    return folder


def same(ours: object, theirs: object) -> bool:
    """Equal to the last bit, and NaN to NaN."""
    return repr(ours) == repr(theirs)


@examples(40)
@given(rows=st.lists(ROWS, max_size=3, unique_by=lambda row: row.batch), result=RESULTS, trial=TRIALS)
def test_records_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], result: Result, trial: Trial
) -> None:
    folder = TrialFolder(tmp_path_factory.mktemp("round") / "key")
    folder.begin(trial)
    token = folder.claim()
    for row in rows:
        folder.publish(row, token)
    assert same(folder.rows(), sorted(rows, key=lambda row: row.batch))
    folder.end(result, token)
    for path in folder.path.glob("*.json"):
        if path.name != "trial.json":  # whose settings are all finite
            json.loads(path.read_text(), parse_constant=pytest.fail)  # other programs read JSON without NaN
    assert same(folder.trial(), trial)
    assert same(folder.result(), result)
    assert same(folder.rows(), [result.row] if result.row else sorted(rows, key=lambda row: row.batch))


def check_types(found: Any) -> None:
    """Check that a record has the types that its class says."""
    if isinstance(found, Row):
        assert all(type(number) is int for number in (found.batch, found.n_batches, found.time_ms, *found.by_seed))
        assert all(isinstance(value, float) for metrics in found.by_seed.values() for value in metrics.values())
        assert type(found.seconds) is float
        assert all(isinstance(failure.detail, str) for failure in found.failures.values())
    elif isinstance(found, Result):
        assert all(isinstance(text, str) for text in (found.traceback, found.hardware, found.reused_from, found.node))
        assert type(found.time_ms) is int
        assert isinstance(found.wall_s, float | int)
        if found.row:
            check_types(found.row)
    elif isinstance(found, Trial):
        assert all(type(seed) is int for seed in found.seeds)
        assert all(isinstance(path, str) and isinstance(v, str | int | float) for path, v in found.config.items())
        assert isinstance(found.varied, dict)
        assert isinstance(found.stage, str)
        assert len(found.key) == 20


def check_read(folder: TrialFolder) -> None:
    """Every record is read or damaged, and after a repair none is damaged."""
    for name, read in READERS.items():
        try:
            found = read(folder)
        except Damaged:
            continue
        except FileNotFoundError:
            assert name == "trial.json"
            continue
        for part in found if isinstance(found, list) else [found]:
            check_types(part)
    for sentence in folder.repair():
        assert str(folder.path) in sentence
    for name, read in READERS.items():
        if name != "trial.json" or (folder.path / name).exists():
            read(folder)
    result = folder.result()
    assert result is None or result.status is not Status.FINISHED or folder.is_whole()


@pytest.mark.parametrize("name", READERS)
@examples(30)
@given(data=st.data())
def test_damaged_files_are_found(folder: TrialFolder, name: str, data: st.DataObject) -> None:
    content = (made_whole(folder).path / name).read_bytes()
    (folder.path / name).write_bytes(data.draw(damaged(content)))
    check_read(folder)


@pytest.mark.parametrize("name", READERS)
@examples(40)
@given(data=st.data())
def test_records_with_another_value_or_without_one_are_found(
    folder: TrialFolder, name: str, data: st.DataObject
) -> None:
    content = json.loads((made_whole(folder).path / name).read_text())
    place = data.draw(st.sampled_from(places(content)))
    is_gone = bool(place) and data.draw(st.booleans())
    changed = without(content, place) if is_gone else replaced(content, place, data.draw(JSON))
    (folder.path / name).write_text(json.dumps(changed))
    check_read(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("result.json", []),
        ("result.json", ""),
        ("result.json", {}),
        ("result.json", {"status": "finished", "row": 3}),
        ("result.json", {"status": "finished", "time_ms": "3"}),
        ("reports.json", {}),
        ("reports.json", ""),
        ("trial.json", {"config": [], "seeds": [1], "stage": "grid"}),
        ("trial.json", {"config": {}, "seeds": "12", "stage": "grid"}),
        ("reports.json", [{**REPORTS[0].as_json(), "batch": "4"}, REPORTS[1].as_json()]),
        ("reports.json", [{**REPORTS[0].as_json(), "batch": True}]),
        ("reports.json", [{**REPORTS[0].as_json(), "by_seed": {"1_0": {}}}]),
        ("reports.json", [{**REPORTS[0].as_json(), "by_seed": {"1": {"a": True}}}]),
        ("reports.json", [{**REPORTS[0].as_json(), "by_seed": {"1": {"a": "0_1"}}}]),
        ("reports.json", [{**REPORTS[0].as_json(), "seconds": "soon"}]),
        ("reports.json", [{**REPORTS[0].as_json(), "failures": {"1": {"kind": "nan", "detail": None}}}]),
    ],
)
def test_a_record_of_other_types_is_damaged(folder: TrialFolder, name: str, content: Any) -> None:
    (folder.path / "result.json").unlink()  # which has a report of its own
    (folder.path / name).write_text(json.dumps(content))
    with pytest.raises(Damaged, match=name):
        READERS[name](folder)
    check_read(folder)


def test_times_are_milliseconds_since_1970(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_456_789)
    assert now_ms() == 1_700_000_000_123


def test_a_record_nested_without_end_is_damaged(folder: TrialFolder) -> None:
    (folder.path / "result.json").unlink()
    for name, read in READERS.items():
        (folder.path / name).write_text("[" * 100_000)
        with pytest.raises(Damaged, match=name):
            read(folder)
        (folder.path / name).unlink()
