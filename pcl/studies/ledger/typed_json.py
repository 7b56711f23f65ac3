"""Dataclasses from JSON, by the types of their fields: a value of another type is refused, never converted."""

import json
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
_NOT_FINITE = ("nan", "inf", "-inf")  # numbers that JSON lacks, as records have them


def parsed(path: Path, read: Callable[[Any], T]) -> T:
    """Return what `read` makes of a file's JSON.

    Raises:
        ValueError: If the file is not JSON, or not what `read` expects.
    """
    try:
        return read(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read") from error


def record(kind: type[T], content: Any, **known: Any) -> T:
    """Build a dataclass from a JSON object; `known` has the values of fields that are read otherwise.

    Raises:
        TypeError: If a value is of another type, or one without a default is missing.
        KeyError: If there is an unknown field, or a value has none of several types.
        ValueError: If a value is not possible.
    """
    readers = _readers(kind)  # type: ignore[arg-type]
    return kind(**{name: readers[name](value) for name, value in table(content).items() if name not in known}, **known)


def table(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, or raise a TypeError."""
    if not isinstance(value, dict):
        raise TypeError(f"an object must be here, but got {type(value).__name__}")
    return value


def whole_key(text: str) -> int:
    """Return the number that a key of a JSON object stands for, or raise a ValueError."""
    if str(number := int(text)) != text:
        raise ValueError(f"{text!r} is not how {number} is written")
    return number


@cache
def _readers(kind: type) -> dict[str, Callable[[Any], Any]]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return a function that reads a value of a field's type."""
    if is_dataclass(kind):
        return lambda value: record(kind, value)  # type: ignore[arg-type]
    if get_origin(kind) is tuple:  # of any number of values of one type
        each = _reader(get_args(kind)[0])
        return lambda value: tuple(map(each, _exact(list, value)))
    if get_origin(kind) is dict:
        of_key, of_value = get_args(kind)
        key, inner = (whole_key if of_key is int else str), _reader(of_value)
        return lambda value: {key(name): inner(content) for name, content in table(value).items()}
    if isinstance(kind, UnionType):  # of plain types, or with None
        options = {dict if is_dataclass(option) else option: _reader(option) for option in get_args(kind)}
        return lambda value: options[type(value)](value)
    return _plain_reader(kind)


def _plain_reader(kind: type) -> Callable[[Any], Any]:
    if kind is float:
        return _real
    if issubclass(kind, Enum):
        return lambda value: kind(_exact(str, value))
    return lambda value: _exact(kind, value)


def _real(value: Any) -> float:
    if type(value) in (int, float) or value in _NOT_FINITE:
        return float(value)
    raise TypeError(f"a number must be here, but got {value!r}")


def _exact(kind: type[T], value: Any) -> T:
    if type(value) is kind:  # True is no number here
        return value
    raise TypeError(f"{kind.__name__} must be here, but got {type(value).__name__}")
