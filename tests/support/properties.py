"""The profile of property tests: the same examples in every run, or with PCL_EXAMPLES=20 twenty times as many."""

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

_FACTOR = int(os.environ.get("PCL_EXAMPLES", "1"))

settings.register_profile(
    "pcl", derandomize=_FACTOR == 1, deadline=None, database=None, print_blob=True,
    suppress_health_check=list(HealthCheck), phases=set(Phase) - {Phase.explain}, report_multiple_bugs=False,
)  # fmt: skip
settings.load_profile("pcl")


def examples(n: int) -> settings:
    """Return how many examples a test draws: `n`, or as many times more as the environment asks for."""
    return settings(max_examples=n * _FACTOR)


def check_sentence(error: Exception, *words: str) -> None:
    """An error is one line with these words in it; commands escape the control characters of what they were given."""
    assert "\n" not in str(error)
    assert all(word in str(error) for word in words), error


# What JSON can hold, NaN and lone surrogates among it
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Draw what a failing disk makes of a file: cut, with bytes changed, with others in it, or with others alone."""
    kind = draw(st.sampled_from(["cut", "changed", "inserted", "other"]))
    place = draw(st.integers(0, len(content)))
    if kind == "cut":
        return content[:place]
    if kind == "changed":
        found = bytearray(content)
        for index, byte in draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=4)):
            found[index] = byte
        return bytes(found)
    more = draw(st.binary(max_size=40) | st.integers(1, 3).map(lambda n: b"[" * 10**n * 20))
    return content[:place] + more + content[place:] if kind == "inserted" else more


def places(content: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return where the values of a JSON document are, each by the keys that lead to it."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(content, dict):
        inner = list(content.items())
    elif isinstance(content, list):
        inner = list(enumerate(content))
    return [here, *(place for key, value in inner for place in places(value, (*here, key)))]


def replaced(content: Any, place: tuple[Any, ...], value: Any) -> Any:
    """Return a JSON document with another value at a place."""
    if not place:
        return value
    head, *rest = place
    copy = dict(content) if isinstance(content, dict) else list(content)
    copy[head] = replaced(copy[head], tuple(rest), value)
    return copy


def without(content: Any, place: tuple[Any, ...]) -> Any:
    """Return a JSON document in which a place is missing."""
    *before, last = place
    inner = content
    for key in before:
        inner = inner[key]
    kept = (
        {k: v for k, v in inner.items() if k != last} if isinstance(inner, dict) else inner[:last] + inner[last + 1 :]
    )
    return replaced(content, tuple(before), kept)
