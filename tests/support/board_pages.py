"""A store with studies in it, and what is on its board's pages."""

import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dashboards.board import site
from dashboards.board.site import Site
from dashboards.board.store.artifacts import Artifacts
from dashboards.board.store.mlflow_mirror import open_database
from pcl.presentation.numbers import number
from pcl.studies.tracking.database_file import FileDatabase
from pcl.studies.tracking.store import Store, default_uri
from tests.support.board_store import write_studies

MLFLOW = "http://mlflow.example:5000"
VOID = {"meta", "link", "input", "img", "br"}


def shown(values: list[float]) -> str:
    """Return mean and standard error as the board writes them, worked out anew."""
    error = statistics.stdev(values) / math.sqrt(len(values))
    return f"{number(statistics.fmean(values))} ± {number(error)}"


@dataclass
class Page(HTMLParser):
    """What a browser would make of a page."""

    html: str
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._table = ""
        self._in_title = False
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self._table = dict(attrs).get("id") or ""
            self.tables[self._table] = []
        elif tag == "tr" and self._table:
            self.tables[self._table].append([])
        elif tag in ("td", "th") and self._table:
            self.tables[self._table][-1].append("")
        elif tag == "small" and self._table:
            self.tables[self._table][-1][-1] += "|"

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._table = ""

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._table and self.tables[self._table] and self.tables[self._table][-1]:
            self.tables[self._table][-1][-1] += data

    def rows(self, table: str) -> list[dict[str, str]]:
        head, *rows = self.tables[table]
        return [dict(zip(head, row, strict=True)) for row in rows]


@dataclass
class Stored:
    """A store with studies in it, and its board."""

    folder: Path
    runs: dict[str, str]
    store: Store
    site: Site

    def page(self, name: str, **query: str) -> Page:
        file = self.site.get(name, query)
        assert file is not None, name
        return Page(file.body.decode())

    def find(self, study: str, kind: str) -> list[Any]:
        """Runs as MLflow's own client has them."""
        name = self.store.call(lambda client: client.get_run(self.runs[study])).data.tags["pcl.study"]
        return self.store.find(self.store.experiments("pcl/"), {"pcl.study": name, "pcl.kind": kind})


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    """For it no time passes: pages are made anew every minute, and what runs falls silent after some of them."""
    folder = tmp_path_factory.mktemp("board")
    runs = write_studies(folder)
    store = Store(default_uri(folder))
    database = open_database(store)
    assert isinstance(database, FileDatabase)
    now = time.time_ns()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site, "time", SimpleNamespace(time_ns=lambda: now))
        yield Stored(folder, runs, store, Site(database, Artifacts(store), lambda: MLFLOW, lambda: ""))
