"""Values at dotted paths: text and numbers become the setting's type; errors suggest the nearest known path.

Nothing here loads torch, so that a misspelt path fails at once.
"""

import ast
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from pcl.config.suggestion import suggestion

_PACKAGE = Path(__file__).parents[1]
_WHOLE_BELOW = 2**53  # bound of whole numbers: from here on, floats skip some
_PLAIN: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}
# Where settings are declared, by the first word of their paths
_SOURCES = {"task": "tasks/*.py", "encoder": "encoders/*.py", "loss": "losses/*.py", "training": "config/schedule.py"}


def read_value(path: str, value: Any, known: Mapping[str, type]) -> Any:
    """Convert text, or a number that fits exactly, to the path's type."""
    if not path:
        raise ValueError("A setting must have a path, as in training.lr=0.01, but it is empty.")
    if path not in known:
        hint = suggestion(path, known) or f" Known are {', '.join(known)}."
        raise ValueError(f"Unknown path {path!r}.{hint}")
    kind = known[path]
    if isinstance(value, kind) and kind is not int:
        return value
    try:
        return _converted(value, kind)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        if hasattr(kind, "parse"):
            raise ValueError(f"`{path}`: {error}") from None
        rule = {int: "a whole number below 2^53", float: "a number", bool: "true or false", str: "text"}.get(kind)
        if issubclass(kind, Enum):
            rule = f"one of {', '.join(str(member.value) for member in kind)}"
        raise ValueError(f"`{path}` must be {rule}, but got {value!r}.") from None


def _converted(value: Any, kind: type) -> Any:
    if hasattr(kind, "parse"):
        return kind.parse(str(value))
    if issubclass(kind, Enum):
        return kind(value)
    if kind is bool:
        return {"true": True, "false": False}[str(value).lower()]
    if isinstance(value, bool) or kind is str:
        raise TypeError
    number = float(value)
    if kind is int:
        if number != int(number) or abs(number) >= _WHOLE_BELOW:
            raise ValueError
        return int(number)
    return number


def check_values(values: Mapping[str, Any]) -> None:
    """Raise a ValueError unless every path is a built-in setting with a valid value; users' own parts are unknown."""
    for path, value in values.items():
        read_value(path, value, declared_paths())


@cache
def declared_paths() -> dict[str, type]:
    """Return the type of every built-in setting by path, read from the source: the classes themselves import torch.

    A type that is neither plain nor an enum of the same files is given as `object`, which fits any value.
    """
    found = [
        (part, node)
        for part, pattern in _SOURCES.items()
        for file in sorted(_PACKAGE.glob(pattern))
        for node in _classes(ast.parse(file.read_bytes()).body)
    ]
    kinds = _PLAIN | {node.name: _enum(node) for _, node in found if "Enum" in map(ast.unparse, node.bases)}
    return {
        f"{part}.{line.target.id}": kinds.get(ast.unparse(line.annotation), object)
        for part, node in found
        if node.name in ("Config", "TrainingConfig")
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        if not ast.unparse(line.annotation).startswith("ClassVar")
    }


def _classes(body: list[ast.stmt]) -> Iterator[ast.ClassDef]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield node
            yield from _classes(node.body)


def _enum(node: ast.ClassDef) -> type[Enum]:
    lines = [line for line in node.body if isinstance(line, ast.Assign)]
    members = [(ast.unparse(line.targets[0]), ast.literal_eval(line.value)) for line in lines]
    make: Any = Enum  # the members are not a literal list
    return make(node.name, members)  # type: ignore[no-any-return]
