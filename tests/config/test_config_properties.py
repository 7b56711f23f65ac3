"""Settings of any path and value: a configuration that can be written down and read again, or one sentence."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pcl.config.canonical_settings import canonical_settings
from pcl.config.run_config import EXPERIMENTS, RunConfig
from pcl.config.schedule import Phase, Phases, Trained, TrainingConfig
from pcl.losses import LOSSES
from tests.support.properties import check_sentence, examples

CONFIGS = [RunConfig.of(loss=loss, task=task, scale="smoke") for task in EXPERIMENTS for loss in LOSSES]
PATHS = sorted({path for config in CONFIGS for path in config.paths()})
NUMBERS = st.integers(-3, 300) | st.integers() | st.floats()
WORDS = sorted({str(value) for config in CONFIGS for value in config.flat().values()})
TEXTS = (
    NUMBERS.map(str)
    | NUMBERS.map(lambda number: f" {number:_}")
    | st.sampled_from([*WORDS, "TRUE", "False", "mu:2 joint"])
    | st.text(max_size=6)
)
VALUES = TEXTS | NUMBERS | st.booleans() | st.none() | st.lists(st.integers(), max_size=2)
CHOICES = st.dictionaries(st.sampled_from(PATHS) | st.text(max_size=12), VALUES, max_size=4)


@examples(150)
@given(config=st.sampled_from(CONFIGS), chosen=CHOICES)
@example(config=CONFIGS[0], chosen={"training.n_batches": "9007199254740993"})
@example(config=CONFIGS[0], chosen={"training.n_batches": 10**400})
@example(config=CONFIGS[0], chosen={"training.kappa_limit": math.nan})
@example(config=CONFIGS[0], chosen={"training.kappa_limit": "inf"})
def test_any_values_make_a_configuration_or_a_sentence(config: RunConfig, chosen: dict[str, object]) -> None:
    try:
        found = config.with_values(chosen)
    except ValueError as error:
        check_sentence(error)
        return
    flat = found.flat()
    assert RunConfig.from_flat(json.loads(json.dumps(flat, allow_nan=False))) == found
    assert RunConfig.from_flat(flat).fingerprint() == found.fingerprint()
    for path, value in chosen.items():
        is_infinite = path == "training.kappa_limit" and flat[path] == "inf"
        assert is_infinite or type(flat[path]) is type(config.flat()[path])
        check_meaning(value, math.inf if is_infinite else flat[path])


def check_meaning(given: object, read: object) -> None:
    """Check that a value is read as it was given, to the last digit of a whole number."""
    if isinstance(read, bool):
        assert str(given).strip().lower() == str(read).lower()
    elif isinstance(read, int):
        assert read == (
            int(str(given)) if str(given).strip().lstrip("+-").replace("_", "").isdecimal() else float(str(given))
        )
    elif isinstance(read, float):
        assert read == float(str(given))
    elif str(given) != read:
        assert phases_of(str(given)) == phases_of(str(read))


def phases_of(text: str) -> list[tuple[str, float]]:
    """Read phases without the code under test: names, and shares that are 1 unless given."""
    words = [word.split(":") for word in text.replace(",", " ").split()]
    return [(name, float(*share) if any(share) else 1.0) for name, *share in words]


@examples(15)
@given(chosen=CHOICES)
def test_a_setting_is_spelled_in_one_way(chosen: dict[str, object]) -> None:
    once = canonical_settings(chosen)
    assert set(once) == set(chosen)
    assert repr(canonical_settings(once)) == repr(once)


PHASES = st.lists(
    st.builds(Phase, st.sampled_from(Trained), st.floats(1e-9, 1e9) | st.integers(1, 9).map(float)),
    min_size=1,
    max_size=5,
).map(Phases)


@examples(50)
@given(phases=PHASES, n_batches=st.integers(1, 10**6))
def test_phases_are_read_as_they_are_written(phases: Phases, n_batches: int) -> None:
    assert Phases.parse(str(phases)) == phases
    assert str(Phases.parse(str(phases))) == str(phases)
    check_schedule(TrainingConfig(n_batches=n_batches, phases=phases))


def check_schedule(training: TrainingConfig) -> None:
    """Phases follow each other to the last batch, and every batch has a rate and an end."""
    ends = training.phases.ends(training.n_batches)
    assert ends == sorted(ends)
    assert ends[-1] == training.n_batches
    for batch in {0, training.n_batches // 2, training.n_batches - 1}:
        assert 0 <= training.phase_at(batch) < len(ends)
        assert batch < training.next_stop(batch) <= training.n_batches
        assert 0 <= training.lr_at(batch) <= training.lr


WORD = st.sampled_from(
    ["mu", "kappa", "joint", "Mu", "mu:", "kappa:2", "joint:4", "mu:1e308", "joint:-1", "mu:nan", ":2"]
)


@examples(100)
@given(text=st.lists(WORD | st.text(max_size=6), max_size=4).map(" ".join) | st.text(max_size=20))
def test_any_text_is_phases_or_a_sentence(text: str) -> None:
    try:
        phases = Phases.parse(text)
    except ValueError as error:
        check_sentence(error)
        return
    assert len(phases) == len(text.replace(",", " ").split())
    assert all(0 < phase.share < math.inf for phase in phases)
    assert Phases.parse(str(phases)) == phases
    check_schedule(TrainingConfig(n_batches=1000, phases=phases))


@pytest.mark.parametrize("text", ["mu:1e308 kappa:1e308", "joint:1e309", "mu:1e300"])
def test_a_share_that_no_batches_can_have_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="share"):
        Phases.parse(text)


PARTS = (
    st.sampled_from([*LOSSES, "elkk"])
    | st.text(max_size=8)
    | st.builds(
        "{}{}.py:{}{}".format,
        st.sampled_from(["", "/", "~", "~nobody/", "./", "\0"]),
        st.text(max_size=5),
        st.sampled_from(["A", "_b", "9", ""]),
        st.sampled_from(["", "#0123456789abcdef", "#0"]),
    )
)


@examples(75)
@given(name=PARTS, key=st.sampled_from(["loss_name", "task_name", "encoder_name"]))
def test_any_name_of_a_part_is_known_or_refused(name: str, key: str) -> None:
    flat = {**CONFIGS[0].flat(), key: name}
    for make in (
        lambda: RunConfig.from_flat(flat),
        lambda: RunConfig.of({}, **{key.removesuffix("_name"): name}),
    ):
        try:
            found = make()
        except ValueError as error:
            check_sentence(error)
        else:
            assert found.flat().get(key, "") == name
