"""The files for Prometheus and Grafana fit together and ask for what is published."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from pcl.studies.execution.monitoring import MEASURES
from tests.support.grafana import DASHBOARDS, GRAFANA, PROMETHEUS_CONFIG, label_variables, queries, read

# What Ray publishes itself; tests/service/test_prometheus.py asks a real one for each.
OF_RAY = {
    "ray_node_cpu_utilization", "ray_node_mem_used", "ray_node_mem_total", "ray_node_disk_utilization_percentage",
    "ray_resources", "ray_component_rss_bytes",
}  # fmt: skip


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_are_whole(path: Path) -> None:
    dashboard = read(path)
    assert dashboard["uid"] == f"pcl-{path.stem}"
    assert dashboard["title"]
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels) > 3
    cells = set()
    for panel in panels:
        assert panel["title"].strip()
        assert panel["description"].strip()
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        assert all(target["expr"].strip() and target["legendFormat"] for target in panel["targets"])
        assert all(part["datasource"]["uid"] == "${datasource}" for part in [panel, *panel["targets"]])
        place = panel["gridPos"]
        covered = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                   for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not covered & cells, f"{panel['title']} lies over another"
        assert max(x for x, _ in covered) < 24
        cells |= covered
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = {name for query in queries(dashboard) for name in re.findall(r"\$([a-z]\w*)", query.text)}
    assert used <= names


def test_dashboards_ask_for_what_is_published() -> None:
    ours = {f"ray_{measure.name}": measure for measure in MEASURES}
    asked = set()
    for path in DASHBOARDS:
        dashboard = read(path)
        for query in queries(dashboard):
            found = set(re.findall(r"\bray_\w+", query.text))
            assert found, query
            assert found <= set(ours) | OF_RAY, query
            asked |= found
            for name in found & set(ours):
                matched = re.findall(r"(\w+)=~?\"", query.text)
                grouped = [
                    label for labels in re.findall(r"by \(([\w, ]+)\)", query.text) for label in labels.split(", ")
                ]
                assert {*matched, *grouped} <= set(ours[name].labels), query
        for metric, label in label_variables(dashboard).values():
            assert label in ours[metric].labels
    assert asked == set(ours) | OF_RAY


def test_services_stay_on_this_machine() -> None:
    """Prometheus, which listens everywhere unless told otherwise, is told in the README."""
    ini = configparser.ConfigParser()
    ini.read(GRAFANA / "grafana.ini")
    assert ini["server"]["http_addr"] == "127.0.0.1"
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    readme = (GRAFANA / "README.md").read_text()
    assert f"--web.listen-address={source['url'].removeprefix('http://')}" in readme
    (provider, _) = yaml.safe_load((GRAFANA / "provisioning/dashboards/pcl.yml").read_text())["providers"]
    assert provider["options"]["path"] == "$PWD/dashboards/grafana/dashboards"
    interval = yaml.safe_load(PROMETHEUS_CONFIG.read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool, of Debian's package prometheus, is not here")
def test_prometheus_takes_its_configuration() -> None:
    checked = subprocess.run(
        ["promtool", "check", "config", PROMETHEUS_CONFIG], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
