"""study.json and objective.json of any content: read as written, or refused with a sentence that names the file."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcl.metrics.names import MAIN_METRICS
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.opened_study import latest_study, read_objective, write_objective
from pcl.studies.ledger.study_spec import ABLATION, REPRODUCTION, SEARCH, StudySpec
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.space.search_method import ASHA, GP, GRID, OPTUNA, RANDOM, TPE, Method
from pcl.studies.space.search_space import Mode, Objective
from tests.support.properties import JSON, check_sentence, damaged, examples, places, replaced, without

NAMES = st.text(max_size=8)
COUNTS = st.lists(st.integers(0, 2**62), max_size=3).map(tuple)
METHODS = st.builds(
    Method,
    st.sampled_from([GRID, RANDOM, OPTUNA]),
    COUNTS,
    st.integers(0, 2**62),
    st.sampled_from(["", TPE, GP]),
    NAMES,
    st.sampled_from(["", ASHA]),
)
SETTINGS = st.dictionaries(
    st.sampled_from(["training.lr", "loss.n_samples", "training.phases", "loss.b"]) | NAMES,
    st.booleans() | st.integers() | st.floats(allow_nan=False) | NAMES,
    max_size=3,
)
SPECS = st.builds(
    StudySpec,
    NAMES,
    NAMES,
    NAMES,
    NAMES,
    SETTINGS,
    COUNTS,
    COUNTS.map(lambda seeds: tuple(-seed - 1 for seed in seeds)),
    NAMES,
    METHODS,
    st.lists(NAMES, max_size=2).map(tuple),
    st.sampled_from(["", "auto"]),
    st.sampled_from([SEARCH, ABLATION, REPRODUCTION]),
)
SPEC = StudySpec(
    "toy_hib", "0" * 16, "paper", "smoke", {"training.lr": 0.5}, method=Method(RANDOM, (2, 3), 1), objectives=("a", "b")
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyFolder:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    study = StudyFolder(tmp_path / "study")
    study.path.mkdir()
    return study


@examples(25)
@given(spec=SPECS)
def test_a_study_is_read_as_it_was_written(folder: StudyFolder, spec: StudySpec) -> None:
    (folder.path / "study.json").write_text(json.dumps(spec.as_json()))
    found = StudySpec.read(folder)
    assert repr(found) == repr(spec)
    assert spec.difference(found) == ""


def check_read(folder: StudyFolder) -> StudySpec | None:
    """It is read, with the types that it has, or refused; as the latest study it is found without being read."""
    assert latest_study(Storage(folder.path.parent), json_kind(folder)) == folder.name
    try:
        found = StudySpec.read(folder)
    except ValueError as error:
        check_sentence(error, str(folder.path / "study.json"), "left as it is")
        return None
    assert all(type(text) is str for text in (found.space, found.fingerprint, found.profile, found.scale, found.data))
    assert all(type(seed) is int for seed in (*found.tuning_seeds, *found.report_seeds, *found.method.n_trials))
    assert all(type(metric) is str for metric in found.objectives)
    assert repr(StudySpec.read(folder)) == repr(found)
    return found


def json_kind(folder: StudyFolder) -> str:
    """Which kind of study the file says, with a search for all that says none."""
    try:
        return str(json.loads((folder.path / "study.json").read_text()).get("kind", SEARCH))
    except Exception:
        return SEARCH


@examples(30)
@given(content=damaged(json.dumps(SPEC.as_json()).encode()))
def test_a_damaged_study_is_refused_or_read(folder: StudyFolder, content: bytes) -> None:
    (folder.path / "study.json").write_bytes(content)
    check_read(folder)


@examples(40)
@given(data=st.data())
def test_a_study_with_another_value_is_refused_or_another_study(folder: StudyFolder, data: st.DataObject) -> None:
    content = json.loads(json.dumps(SPEC.as_json()))
    place = data.draw(st.sampled_from(places(content)))
    is_gone = bool(place) and data.draw(st.booleans())
    changed = without(content, place) if is_gone else replaced(content, place, data.draw(JSON))
    (folder.path / "study.json").write_text(json.dumps(changed))
    found = check_read(folder)
    if found is not None and not is_gone and repr(changed) != repr(content):
        assert SPEC.difference(found)


@pytest.mark.parametrize("content", ["[]", "3", '"study"', "[" * 100_000, "{}", '{"format": 1}', "\udcff"])
def test_what_is_no_study_is_refused(folder: StudyFolder, content: str) -> None:
    (folder.path / "study.json").write_bytes(content.encode(errors="surrogateescape"))
    assert check_read(folder) is None


@examples(30)
@given(data=st.data())
def test_an_objective_is_read_as_written_or_not_at_all(folder: StudyFolder, data: st.DataObject) -> None:
    objective = Objective(data.draw(st.sampled_from(MAIN_METRICS)), data.draw(st.sampled_from(Mode)))
    write_objective(folder, objective)
    assert read_objective(folder) == objective
    path = folder.path / "objective.json"
    content = json.loads(path.read_text())
    path.write_bytes(
        data.draw(
            damaged(path.read_bytes())
            | st.builds(
                lambda place, value: json.dumps(replaced(content, place, value)).encode(),
                st.sampled_from(places(content)),
                JSON,
            )
        )
    )
    found = read_objective(folder)
    assert found is None or (type(found.metric) is str and type(found.mode) is Mode)
