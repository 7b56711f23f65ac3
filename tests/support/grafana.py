"""What the Grafana dashboards ask, as Prometheus would be asked it."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.services import ROOT

GRAFANA = ROOT / "dashboards/grafana"
PROMETHEUS_CONFIG = ROOT / "dashboards/prometheus/prometheus.yml"
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))

Json = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """A query of a panel."""

    panel: str
    text: str

    def with_values(self, values: dict[str, str]) -> str:
        """The query with dashboards' variables put in, as Grafana does."""
        return re.sub(r"\$([a-z]\w*)", lambda name: values[name[1]], self.text)


def read(path: Path) -> Json:
    content: Json = json.loads(path.read_text())
    return content


def queries(dashboard: Json) -> list[Query]:
    return [Query(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel["targets"]]


def label_variables(dashboard: Json) -> dict[str, tuple[str, str]]:
    """The variables that are a label's values: metric and label, by name."""
    found = {}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
            assert match is not None, variable
            found[variable["name"]] = match[1], match[2]
    return found
