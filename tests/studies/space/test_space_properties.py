"""Spaces of any content, and users' files of them: cells that hold what was declared, or one sentence."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcl.config.run_config import RunConfig
from pcl.losses import LOSSES
from pcl.studies.space.ablation import Ablation, load_ablation
from pcl.studies.space.ranges import Range
from pcl.studies.space.search_method import n_trials_of
from pcl.studies.space.search_space import SearchSpace, Stage, Variants, load_space
from tests.support.properties import JSON, check_sentence, examples

PATHS = [
    "loss.kappa_pos",
    "loss.n_samples",
    "training.lr",
    "training.phases",
    "encoder.dim",
    "loss.learn_kappa_pos",
    "loss.b",
]
NUMBERS = st.integers(-2, 40) | st.floats(1e-6, 100) | st.sampled_from([1e-4, 0.5, 16])
VALUES = NUMBERS | st.sampled_from(["mu kappa", "joint", "true", "8", "mu:2 joint", True]) | JSON
LABELS = st.text(max_size=4) | st.integers()
SETTINGS = st.dictionaries(st.sampled_from(PATHS) | LABELS, VALUES, min_size=0, max_size=2)
RANGES = st.tuples(NUMBERS, NUMBERS, st.booleans(), st.booleans(), st.sampled_from([0.0, 1.0, 0.25]))


def ranges(content: tuple[Any, ...]) -> Range:
    low, high, *rest = content
    return Range(min(low, high), max(low, high) + 1, *rest)


AXES = st.dictionaries(
    st.sampled_from([*PATHS, "M"]) | LABELS,
    st.lists(VALUES, max_size=3).map(tuple)
    | RANGES
    | st.dictionaries(LABELS, SETTINGS, max_size=2).map(Variants)
    | JSON,
    max_size=2,
)
SPACES = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["mine", "Mine.2-b"]) | st.text(max_size=4),
        "loss": st.sampled_from([*LOSSES, "hibb"]),
        "stages": st.lists(st.tuples(st.text(max_size=3), AXES), max_size=2),
    },
    optional={
        "base": st.dictionaries(st.sampled_from(PATHS) | st.text(max_size=4), VALUES, max_size=2),
        "tuning_seeds": st.lists(st.integers(-1, 2**64) | JSON, max_size=3).map(tuple),
        "published": st.dictionaries(st.sampled_from([*PATHS, "M"]), VALUES, max_size=1),
    },
)


def made(content: dict[str, Any]) -> SearchSpace:
    """A space of what was drawn; ranges are made as users' files make them."""
    stages = [
        Stage(name, {path: ranges(axis) if is_range(axis) else axis for path, axis in axes.items()})
        for name, axes in content["stages"]
    ]
    return SearchSpace(**{**content, "stages": tuple(stages)})


def is_range(axis: Any) -> bool:
    return isinstance(axis, tuple) and len(axis) == 5 and isinstance(axis[2], bool) and isinstance(axis[3], bool)


@examples(75)
@given(content=SPACES)
def test_any_space_has_cells_of_its_values_or_is_refused(content: dict[str, Any]) -> None:
    try:
        space = made(content)
    except ValueError as error:
        check_sentence(error)
        return
    assert space.fingerprint() == made(content).fingerprint()
    assert all(0 < n_trials_of(stage, None) <= 100 for stage in space.stages)
    stage = space.stages[0]
    for values in list(stage.probes() if stage.is_sampled else stage.grid())[:3]:
        cell = space.cell_from(0, values, scale="smoke")
        flat = cell.config.flat()
        assert RunConfig.from_flat(json.loads(json.dumps(flat))) == cell.config
        for path in set(flat) & set(cell.varied):
            assert flat[path] == cell.varied[path]
            assert type(flat[path]) is type(cell.varied[path])


# Spaces that are possible: the one above rarely comes so far
POSSIBLE = {
    "loss.kappa_pos": st.floats(0.5, 64),
    "loss.n_samples": st.integers(1, 64),
    "training.lr": st.floats(1e-6, 1),
    "loss.learn_kappa_pos": st.booleans(),
    "training.phases": st.sampled_from(["mu kappa", "joint", "mu:2 joint"]),
}


@examples(15)
@given(data=st.data())
def test_possible_spaces_have_every_combination_once(data: st.DataObject) -> None:
    paths = data.draw(st.lists(st.sampled_from(sorted(POSSIBLE)), min_size=1, max_size=3, unique=True))
    axes = {path: tuple(data.draw(st.lists(POSSIBLE[path], min_size=1, max_size=3, unique=True))) for path in paths}
    space = SearchSpace("mine", "mc_info_nce", (Stage("grid", axes),))
    cells = space.cells(0, scale="smoke")
    assert len(cells) == space.n_trials[0] == math.prod(map(len, axes.values()))
    assert len({cell.config.fingerprint() for cell in cells}) == len(cells)
    for path, values in axes.items():
        assert list(dict.fromkeys(cell.config.flat()[path] for cell in cells)) == list(values)


@examples(50)
@given(content=RANGES, seed=st.integers(0, 10**6))
def test_a_range_draws_from_itself(content: tuple[Any, ...], seed: int) -> None:
    try:
        found = ranges(content)
    except ValueError as error:
        check_sentence(error)
        return
    for state in range(seed, seed + 5):
        number = found.sample(random_state=state)
        assert found.low <= number <= found.high
        assert number == found.sample(random_state=state)
        assert isinstance(number, int) or not found.is_whole


FILE = """
from pcl import Ablation, SearchSpace, Stage, Variant, log_uniform
SPACE = SearchSpace({name!r}, {loss!r}, (Stage({stage!r}, {axes!r}),), base={base!r})
ABLATION = Ablation({name!r}, "How?", "lr", "a", {{"a": Variant(), "b": Variant({base!r})}})
"""


@examples(30)
@given(
    text=st.text(max_size=30)
    | st.builds(
        FILE.format,
        name=st.just("mine") | st.text(max_size=3),
        loss=st.sampled_from([*LOSSES, ""]),
        stage=st.text(max_size=3),
        axes=st.dictionaries(st.sampled_from(PATHS), st.lists(VALUES, max_size=2), max_size=2),
        base=st.dictionaries(st.sampled_from(PATHS), VALUES, max_size=1),
    )
    | st.integers(0, len(FILE)).map(lambda place: FILE[:place])
)
def test_any_file_of_a_user_is_a_space_or_a_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(text.encode(errors="surrogatepass"))
    for load, kind in ((load_space, SearchSpace), (load_ablation, Ablation)):
        try:
            found = load(str(file))
        except ValueError as error:
            check_sentence(error, str(file))
        else:
            assert isinstance(found, kind)


@examples(30)
@given(
    name=st.text(max_size=12) | st.builds("{}.py:{}".format, st.text(max_size=6), st.sampled_from(["A", "_", "9", ""]))
)
def test_any_name_of_a_space_is_known_or_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        load_space(name)
    assert str(error.value)
