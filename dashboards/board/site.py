"""The files of the board by name, made on request; the server and the export share them."""

import contextlib
import itertools
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dashboards.board.html.frame import PageContext
from dashboards.board.pages.ablation import ablation_page
from dashboards.board.pages.compare import compare_page, curves_data, study_data
from dashboards.board.pages.overview import overview_page
from dashboards.board.pages.parameters import address_of, metrics_of, parameters_page, slug
from dashboards.board.pages.scoreboard import scoreboard_page
from dashboards.board.pages.study import learning, study_page
from dashboards.board.pages.winner import in_order, winner_page
from dashboards.board.store.artifacts import Artifacts, Figure
from dashboards.board.store.histories import histories
from dashboards.board.store.records import Study, all_studies, one_study, trials_on
from dashboards.paper.results import RESULTS, read_results
from pcl.metrics.names import BEST_BATCH, MAIN_METRICS
from pcl.studies.paper.published import report_seeds
from pcl.studies.tracking.database_file import Database, FileDatabase
from pcl.studies.tracking.tags import RunState

_STATIC = {path.name: path for path in Path(__file__).with_name("static").iterdir()}
_KINDS = {
    ".css": "text/css", ".js": "text/javascript", ".html": "text/html", ".png": "image/png", ".svg": "image/svg+xml",
}  # fmt: skip
_OF_CURVES = (*MAIN_METRICS, BEST_BATCH)  # metrics that a page with curves needs of its runs
_OF_STUDY = re.compile(r"(study|ablation|winner|data|curves)-([A-Za-z0-9]{1,64})\.(html|js)")
_PARAMETERS = re.compile(r"parameters-([A-Za-z0-9]{1,64})(?:-([\w.-]{1,100}))?\.html")
_IMAGE = re.compile(r"image-([A-Za-z0-9]{1,64})-([A-Za-z0-9_.-]+\.png)")
_RUN = re.compile(r"[A-Za-z0-9]{1,64}")
_SCOREBOARD = "scoreboard.html"
_MOST_KEPT = 128  # files
_MOST_PREPARED = 3  # pages of studies that are made before they are requested
_LARGE = 500  # from this many trials on, a page takes so long that this is worth it
_MOST_THUMBNAILS = 12  # studies of the overview that show a figure
_MOST_CURVES = 500  # runs of a study whose curves can be compared
_MOST_ASKED = 24  # the same for a server, which gets a request for every curve
_NONE: Mapping[str, str] = {}


@dataclass(frozen=True)
class File:
    """A file's content and type."""

    body: bytes
    kind: str


class Site:
    """The board's files; thread-safe.

    `mlflow` and `ray` return the addresses of MLflow's pages and of Ray's dashboard, or "". A live board is served, and
    its pages check for updates.
    """

    def __init__(
        self, database: Database, artifacts: Artifacts, mlflow: Callable[[], str], ray: Callable[[], str], *,
        is_live: bool = True,
    ) -> None:  # fmt: skip
        self._database, self._artifacts = database, artifacts
        self._mlflow, self._ray, self._is_live = mlflow, ray, is_live
        self._kept: OrderedDict[tuple[str, str], tuple[str, File]] = OrderedDict()
        self._lock = threading.Lock()
        self._turns = [threading.Lock() for _ in range(16)]
        self._is_prepared = not is_live
        self._is_listing, self._n_listings = False, 0  # of thumbnails, in the background

    def names(self) -> list[str]:
        """Return the names of all files."""
        found = ["index.html", _SCOREBOARD, "compare.html", *sorted(_STATIC)]
        for study in all_studies(self._database):
            found += [f"{kind}-{study.run.id}.html" for kind in ("study", "ablation", "winner")]
            whole = one_study(self._database, study.run.id, MAIN_METRICS)
            found += [address_of(whole, metric) for metric in metrics_of(whole)] if whole else []
            found += [f"{kind}-{study.run.id}.js" for kind in ("data", "curves")]
            found += [figure.address for figure in self._artifacts.figures(study)]
        return found

    def get(self, name: str, query: Mapping[str, str] = _NONE) -> File | None:
        """Return a file, or None; a `StoreError` says that the store cannot be read."""
        if name in _STATIC:
            return File(_STATIC[name].read_bytes(), _kind(name))
        now_ms, reading = time.time_ns() // 1_000_000, self._database.reading
        around = PageContext(self._mlflow(), self._ray(), self._is_live, now_ms, reading)
        baseline = query.get("baseline", "") if name.startswith("ablation-") else ""
        key = name, baseline if _RUN.fullmatch(baseline) else ""
        version = self._version(around)
        if name == "index.html":
            version += f" {self._n_listings}"
        with self._turns[hash(key) % len(self._turns)]:  # a request for a file that is being made waits for it
            file = self._find(key, version)
            if file is None and (body := self._make(name, key[1], around)) is not None:
                file = File(body if isinstance(body, bytes) else body.encode(), _kind(name))
                self._keep(key, version, file)
            return file

    def _version(self, around: PageContext) -> str:
        """Return a mark that changes when pages do, and with time while a study runs: it may have fallen silent."""
        content = self._database.version()
        is_running = self._database.rows("select 1 from runs where status = ? limit 1", RunState.RUNNING)
        minute = around.now_ms // 60_000 if is_running else None
        return " ".join(map(str, (content, around.reading, around.mlflow, around.ray, minute)))

    def _find(self, key: tuple[str, str], version: str) -> File | None:
        with self._lock:
            if key not in self._kept or self._kept[key][0] != version:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][1]

    def _keep(self, key: tuple[str, str], version: str, file: File) -> None:
        with self._lock:
            self._kept[key] = version, file
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)

    def _prepare(self, studies: Sequence[Study]) -> None:
        """Make the slow pages once, in the background: whoever sees the overview will open another page.

        The scoreboard is slow because it compares configurations, for which torch is imported.
        """
        with self._lock:
            is_prepared, self._is_prepared = self._is_prepared, True
        names = [f"study-{study.run.id}.html" for study in studies if len(study.trials) >= _LARGE][:_MOST_PREPARED]
        if not is_prepared:
            threading.Thread(target=self._make_all, args=([*names, _SCOREBOARD],), name="prepare", daemon=True).start()

    def _make_all(self, names: Sequence[str]) -> None:
        with contextlib.suppress(Exception):  # a request for the page gets the error
            for name in names:
                self.get(name)

    def _make(self, name: str, baseline: str, around: PageContext) -> str | bytes | None:
        if name == "index.html":
            studies = all_studies(self._database)
            self._prepare(studies)
            return overview_page(studies, around, self._thumbnails(studies))
        if name == "compare.html":
            return compare_page(all_studies(self._database), around)
        if name == _SCOREBOARD:
            seeds = report_seeds()
            return scoreboard_page(trials_on(self._database, seeds), seeds, around, read_results(RESULTS))
        if image := _IMAGE.fullmatch(name):
            return self._artifacts.png(image[1], image[2])
        return self._by_study(name, baseline, around)

    def _thumbnails(self, studies: Sequence[Study]) -> dict[str, Figure]:
        """Return the first figure of the latest studies, by their run.

        A live board does not wait for the store: figures that are not known yet are listed in the background, and the
        overview is made anew when they are.
        """
        latest = [study for study in studies if study.selects and not study.is_running][:_MOST_THUMBNAILS]
        is_ready = [not self._is_live or self._artifacts.is_known(study) for study in latest]
        self._list_figures([study for study, is_known in zip(latest, is_ready, strict=True) if not is_known])
        known = itertools.compress(latest, is_ready)
        found = {study.run.id: self._artifacts.figures(study) for study in known}
        return {run_id: in_order(figures)[0] for run_id, figures in found.items() if figures}

    def _list_figures(self, studies: Sequence[Study]) -> None:
        """List figures of studies in a thread, unless one does already."""
        with self._lock:
            if self._is_listing or not studies:
                return
            self._is_listing = True

        def work() -> None:
            with contextlib.suppress(Exception):  # the winner's page will show it
                for study in studies:
                    self._artifacts.figures(study)
            is_news = any(map(self._artifacts.is_known, studies))
            with self._lock:
                self._is_listing = False
                self._n_listings += is_news

        threading.Thread(target=work, name="thumbnails", daemon=True).start()

    def _parameters(self, run_id: str, asked: str, around: PageContext) -> str | None:
        """Return the page of a study's settings by the metric asked for, where there is such a metric."""
        study = one_study(self._database, run_id, MAIN_METRICS)
        metrics = {slug(metric): metric for metric in metrics_of(study)} if study else {}
        metric = metrics.get(asked) if asked else study.objective if study else None
        return parameters_page(study, metric, around) if study and metric else None

    def _by_study(self, name: str, baseline: str, around: PageContext) -> str | None:
        """Return one of a study's pages, or its data."""
        if found := _PARAMETERS.fullmatch(name):
            return self._parameters(found[1], found[2] or "", around)
        if not (found := _OF_STUDY.fullmatch(name)) or (found[1] in ("data", "curves")) != (found[3] == "js"):
            return None
        study = one_study(self._database, found[2], _OF_CURVES if found[1] in ("study", "curves") else ())
        return self._of_study(found[1], study, baseline, around) if study else None

    def _of_study(self, kind: str, study: Study, baseline: str, around: PageContext) -> str:
        if kind == "ablation":
            return ablation_page(study, around, baseline)
        if kind == "winner":
            return winner_page(study, self._artifacts.figures(study), around)
        if kind == "data":
            return study_data(study)
        if kind == "curves":
            n_most = _MOST_CURVES if isinstance(self._database, FileDatabase) else _MOST_ASKED
            return curves_data(study, lambda runs, metric: histories(self._database, runs, metric), n_most)
        return study_page(study, histories(self._database, [t.run for t in learning(study)], study.objective), around)


def _kind(name: str) -> str:
    kind = _KINDS[Path(name).suffix]
    return kind if kind.startswith("image/") else f"{kind}; charset=utf-8"
