"""Files of results as `launch/reproduce.py --output` keeps them, of made-up trials."""

from dataclasses import replace
from pathlib import Path

from dashboards.paper.formats import Sheet
from launch.reproduction.cells import Cells, Setting, ours_of
from launch.reproduction.results import origins_of, write_results
from launch.shared.command import settings
from launch.studies.requests import ConfigRequest, ReproductionRequest
from pcl.config.failure import Failure, FailureKind
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.paper.comparison import lines_of
from pcl.studies.paper.published import published_tables
from pcl.studies.session.request import RunRequest
from pcl.studies.tracking.finished_trials import Found, Known
from pcl.studies.tracking.tags import NUMERICS
from pcl.studies.tracking.tracker import Tracker

TABLES = {table.name: table for table in published_tables()}
RUNAWAY = Failure(FailureKind.RUNAWAY_KAPPA)
TAGS = {"pcl.hardware": "NVIDIA H200", "pcl.torch": "2.11.0", "pcl.commit": "c0ffee" * 6 + "+",
        "pcl.maths": NUMERICS, "pcl.source": "50c4ce"}  # fmt: skip
DAY_MS = 1_794_700_800_000  # 2026-11-15, 00:00 UTC
ASKED = ReproductionRequest(
    ("toy_correctsetups", "infonce"), ("2dplot",), is_all=False, output=None, is_plan=False,
    config=ConfigRequest("paper", seeds=(4, 5, 6)),
    run=RunRequest(Storage(Path("runs"))),
)  # fmt: skip


def keep(folder: Path, *texts: str) -> list[Path]:
    """Write two rows trained on different days, one without one of its seeds, and others that were not run."""
    setting = Setting("reference", "paper", (4, 5, 6), settings(texts))
    cells = Cells.of([TABLES["tab:toy_correctsetups"], TABLES["fig:2dplot"]], setting)
    metrics = {"eval/mu_mae": 0.05, "eval/mu_rank_corr": 0.98, "eval/kappa_mae": 6.0, "eval/kappa_rank_corr": 0.8}
    seeds = {seed: {key: value * (1 + seed / 100) for key, value in metrics.items()} for seed in (4, 5, 6)}
    of = {row: cells.keys["tab:toy_correctsetups", row] for row in ("ambiguous", "clear")}
    found = {
        of["ambiguous"]: Known((4, 5, 6), (Found("s", "r", seeds, {}, TAGS, DAY_MS),)),
        of["clear"]: Known((4, 5, 6), (Found("s", "r", seeds, {6: RUNAWAY}, TAGS, DAY_MS + 86_400_000),)),
    }
    sheets = []
    for name in ("tab:toy_correctsetups", "fig:2dplot"):
        lines = lines_of(TABLES[name], ours_of(TABLES[name], cells, found, setting))
        sheets.append(Sheet(name, TABLES[name].title, "", lines))
    config = replace(ASKED.config, settings=settings(texts), setting_texts=texts)
    request = replace(ASKED, output=folder, config=config)
    return write_results(request, sheets, setting, origins_of(cells, found, [], Tracker("sqlite:///unused.db")), {})
