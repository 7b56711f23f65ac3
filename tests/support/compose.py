"""launch/cluster/compose.yaml as Docker Compose reads it, as far as it is used there."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from launch.testbed.processes import ROOT
from tests.support import postgres

FILE = ROOT / "launch" / "cluster" / "compose.yaml"
PASSWORD = {"POSTGRES_PASSWORD": postgres.PASSWORD}
_VARIABLE = re.compile(r"\$\{(\w+)(:[-?])([^}]*)\}")


def composed(environment: Mapping[str, str]) -> dict[str, Any]:
    """The services, with variables in place; a ValueError where one that is required is missing or empty."""

    def value(found: re.Match[str]) -> str:
        name, rule, rest = found.groups()
        if not environment.get(name) and rule == ":?":
            raise ValueError(f"{name}: {rest}")
        return environment.get(name) or rest

    def filled(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: filled(item) for key, item in part.items()}
        if isinstance(part, list):
            return [filled(item) for item in part]
        text = _VARIABLE.sub(value, part) if isinstance(part, str) else part
        assert "${" not in str(text)
        return text

    services: dict[str, Any] = filled(yaml.safe_load(FILE.read_text())["services"])
    return services


def words(service: Mapping[str, Any], replaced: Mapping[str, str] | None = None) -> list[str]:
    """A service's command, with parts of it replaced."""
    found = [str(word) for word in service["command"]]
    for old, new in (replaced or {}).items():
        assert any(old in word for word in found), old
        found = [word.replace(old, new) for word in found]
    return found
