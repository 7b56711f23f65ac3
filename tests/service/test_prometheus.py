"""A real Prometheus scrapes a real Ray with a study in it, and answers what the Grafana dashboards ask."""

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.testbed.processes import DEADLINE_S
from pcl.studies.cluster.session import DASHBOARD
from pcl.studies.execution.monitoring import KAPPA_MEAN, MEASURES, TRIALS
from tests.support.grafana import DASHBOARDS, PROMETHEUS_CONFIG, label_variables, queries, read
from tests.support.services import BASE, Grid, Home, free_port, home, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("prometheus"),  # they share a study
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="no Prometheus is here (Debian's package is called prometheus)"
    ),
]

# Two trials that are done at once and two that run for as long as the test does.
GRID = {"training.n_batches": [4, 40_000], "loss.n_samples": [2, 4]}
# Labels that Ray and Prometheus put to every value.
OF_RAY = {"Component", "NodeAddress", "SessionName", "Version", "WorkerId", "instance", "job", "__name__"}


@dataclass(frozen=True)
class Prometheus:
    port: int

    def get(self, path: str, **parameters: str) -> Any:
        """What it answers; nothing while it starts."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
                return None
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None
        except OSError:
            return None

    def values(self, query: str) -> list[tuple[dict[str, str], float]]:
        data = self.get("query", query=query) or {"result": []}
        return [(series["metric"], float(series["value"][1])) for series in data["result"]]


@contextmanager
def prometheus(place: Home) -> Iterator[Prometheus]:
    """Ours, but for the times and the place of Ray's folder."""
    text = PROMETHEUS_CONFIG.read_text()
    assert "/tmp/ray/" in text
    config = yaml.safe_load(text.replace("/tmp/ray/", f"{place.path}/ray/"))
    config["global"].update(scrape_interval="3s", scrape_timeout="3s")  # beside other work, an answer takes one
    config["scrape_configs"][0]["file_sd_configs"][0]["refresh_interval"] = "1s"
    file, port = place.path / "prometheus.yml", free_port()
    file.write_text(yaml.safe_dump(config))
    with (place.path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={place.path / 'tsdb'}",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


@pytest.fixture(scope="module")
def watched() -> Iterator[tuple[Home, Grid, Prometheus]]:
    """A study that runs, and a Prometheus that has heard of it."""
    with pytest.MonkeyPatch.context() as patch, home() as place, prometheus(place) as server:
        patch.setenv("RAY_metrics_report_interval_ms", "1000")
        patch.delenv(DASHBOARD)  # it tells Prometheus where Ray's nodes are
        space = place.space("watched", {"grid": GRID}, {**BASE, "training.eval_every": 4})
        grid = place.start("--space", space, "--scale", "smoke", "--seeds", "1,2", "--name", "watched")
        try:
            wait_for(lambda: server.values(f"ray_{KAPPA_MEAN.name}") or grid.process.poll(), "a trial is known")
            assert grid.process.poll() is None, grid.errors
            yield place, grid, server
        finally:
            grid.kill()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_panel_has_data(watched: tuple[Home, Grid, Prometheus], path: Path) -> None:
    _, grid, server = watched
    dashboard = read(path)
    wanted = label_variables(dashboard)

    def known() -> dict[str, str]:
        """Values of the dashboard's variables; the driver may be heard of after its workers."""
        found = {n: server.get(f"label/{label}/values", **{"match[]": metric}) for n, (metric, label) in wanted.items()}
        return {name: "|".join(values) for name, values in found.items() if values}

    wait_for(lambda: set(known()) == set(wanted), "all variables have values")
    variables = known()
    assert variables in ({}, {"study": "watched"})
    left = queries(dashboard)
    assert left

    def all_answered() -> bool:
        left[:] = [query for query in left if not server.values(query.with_values(variables))]
        assert grid.process.poll() is None, grid.errors
        return not left

    wait_for(all_answered, f"there are data of all panels but {left}")


def test_what_is_shown_is_so(watched: tuple[Home, Grid, Prometheus]) -> None:
    place, _, server = watched

    def trials() -> dict[str, float]:
        return {labels["state"]: value for labels, value in server.values(f"ray_{TRIALS.name}")}

    wait_for(
        lambda: trials() == {"waiting": 0, "running": 2, "finished": 2, "stopped": 0, "failed": 0}, "two and two trials"
    )
    wait_for(lambda: len(server.values(f"ray_{KAPPA_MEAN.name}")) == 2, "both workers are there")
    kappas = [value for _, value in server.values(f"ray_{KAPPA_MEAN.name}")]
    rows = [row for folder in place.study("watched").trials() for row in folder.rows()]
    reported = [row.metrics["eval/kappa_mean"] for row in rows]
    assert all(kappa == pytest.approx(min(reported, key=lambda other: abs(other - kappa))) for kappa in kappas)


def test_labels_are_those_that_are_meant(watched: tuple[Home, Grid, Prometheus]) -> None:
    _, _, server = watched
    for measure in MEASURES:
        for labels, _ in server.values(f"ray_{measure.name}"):
            assert set(labels) == {*measure.labels, *OF_RAY}
