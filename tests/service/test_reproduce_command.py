"""`launch/ablate.py` inline, `launch/reproduce.py` on Ray: one trains, the other finds, both say the same."""

import csv
import json
import math
import re
import statistics
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from dashboards.paper.formats import cells_of
from dashboards.paper.results import read_result
from launch.ablate import _parser as ablate_parser
from launch.ablate import request_of as ablation_request
from launch.grid import _parser as grid_parser
from launch.grid import request_of as grid_request
from launch.reproduce import main as reproduce
from launch.studies.ablate_command import asked_ablation
from launch.studies.grid_study import asked_study
from pcl.studies.ledger.folders import StudyFolder
from tests.support.clusters import Cluster
from tests.support.commands import called
from tests.support.services import INLINE, Home, Records, home

EXPECTED_SECONDS = 25
ABLATE, REPRODUCE = "launch/ablate.py", "launch/reproduce.py"
# A truth that is drawn at once
FAST = [
    "--scale", "smoke", *(word for setting in ("task.smoothing=none", "task.largest_cosine=0.9")
                          for word in ("--set", setting)),
]  # fmt: skip


@pytest.fixture(scope="module")
def place(ray_of_all: Cluster) -> Iterator[Home]:
    """The variants of the shared backbone, ablated."""
    with home(ray_of_all) as found:
        found.run("--ablation", "shared_backbone", "--name", "a", *FAST, *INLINE, script=ABLATE)
        yield found


def reproduced(place: Home, *words: str) -> str:
    """What `launch/reproduce.py` says where nothing is left to train."""
    done = called(REPRODUCE, reproduce, *words, "--storage", str(place.storage))
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def by_variant(place: Home, metric: str) -> dict[str, dict[str, float]]:
    """Variant -> seed -> value, from MLflow's own store."""
    runs = Records(place.storage, "a").runs("seed")
    found: dict[str, dict[str, float]] = {}
    for run in runs:
        label = run.data.params["encoder.backbone"]
        found.setdefault(label, {})[run.data.tags["pcl.seed"]] = run.data.metrics[metric]
    return found


def test_the_ablation_is_what_mlflow_has(place: Home) -> None:
    rows = {(row["variant"], row["metric"]): row for row in rows_of(place.study("a").path / "ablation.csv")}
    for metric in ("eval/kappa_rank_corr", "eval/mu_mae"):
        values = by_variant(place, metric)
        assert set(values["independent"]) == set(values["shared"]) == {"4", "5"}
        differences = [values["shared"][seed] - values["independent"][seed] for seed in ("4", "5")]
        row = rows["shared", metric]
        assert float(row["mean"]) == pytest.approx(statistics.fmean(values["shared"].values()))
        assert float(row["difference"]) == pytest.approx(statistics.fmean(differences))
        half_width = 12.706204736 * statistics.stdev(differences) / math.sqrt(2)  # Student's t, one degree of freedom
        assert float(row["high"]) - float(row["low"]) == pytest.approx(2 * half_width)
        assert row["scale"] == "smoke"


def test_the_board_finds_it(place: Home) -> None:
    records = Records(place.storage, "a")
    parent = records.parent()
    (baseline,) = [run for run in records.runs("trial") if run.data.params["encoder.backbone"] == "independent"]
    assert parent.data.tags["pcl.ablation"] == "shared_backbone"
    assert parent.data.tags["pcl.baseline"] == baseline.data.tags["pcl.trial"]
    assert {"ablation.txt", "ablation.csv", "trials.csv"} <= records.artifacts(parent)


def test_the_table_reads_what_the_ablation_trained(place: Home) -> None:
    """Nothing is left to train, so that no Ray starts; and every number is that of the store."""
    kept = place.path / "kept"
    said = reproduced(place, "--table", "ablation_shared", *FAST, "--output", str(kept))
    assert "2 cells, each once however many tables have it: 0 to be trained, 2 in MLflow" in said
    assert "Ray dashboard" not in said
    (folder,) = (place.storage / "reproduce").glob("reference-smoke-*")
    rows = rows_of(folder / "tab-ablation_shared.csv")
    names = {"independent networks": "independent", "shared backbone": "shared"}
    metrics = {"μ RMSE": "eval/mu_mae", "κ rank corr.": "eval/kappa_rank_corr"}
    checked = 0
    for row in rows:
        if row["metric"] in metrics:
            values = list(by_variant(place, metrics[row["metric"]])[names[row["row"]]].values())
            error = statistics.stdev(values) / math.sqrt(2)
            assert row["ours"] == f"{statistics.fmean(values):.3f}±{error:.3f} [smoke, changed]"
            checked += 1
    assert checked == 4
    assert all((folder / f"tab-ablation_shared.{ending}").exists() for ending in ("txt", "md", "tex", "html"))
    assert "[smoke, changed]" in (folder / "index.html").read_text()
    result = read_result(kept / folder.name / "tab-ablation_shared.csv")
    assert [cells_of(line) for line in result.lines] == [tuple(row.values()) for row in rows]
    tags = Records(place.storage, "a").runs("trial")[0].data.tags
    assert {origin.hardware for origin in result.origins} == {tags["pcl.hardware"]}
    assert {origin.torch for origin in result.origins} == {version("torch")}
    assert all(re.fullmatch(r"20\d\d-\d\d-\d\d", origin.date) for origin in result.origins)


def test_what_is_missing_is_trained_and_drawn(place: Home) -> None:
    """A figure with one cell of its own; the same again trains nothing."""
    asked = ["--figure", "2dplot", *FAST]
    first = place.run(*asked, *INLINE, script=REPRODUCE).said
    assert "1 to be trained" in first
    (picture,) = (place.storage / "reproduce").glob("reference-smoke-*/fig-2dplot.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    picture.unlink()
    again = reproduced(place, *asked)
    assert "0 to be trained" in again
    assert picture.exists()
    table = first[first.index("fig:2dplot") : first.index("written")]
    assert table in again


def test_a_study_is_of_its_command(place: Home) -> None:
    arguments = ablate_parser().parse_args(["--resume", "--storage", str(place.storage)])
    assert asked_ablation(ablation_request(arguments)).folder.name == "a"
    (name,) = [path.parent.name for path in place.storage.glob("reproduce_toy*/study.json")]
    assert json.loads((StudyFolder(place.storage / name).path / "study.json").read_text())["kind"] == "reproduction"
    with pytest.raises(ValueError, match=r"another command; `python launch/reproduce.py --storage .*` resumes"):
        asked_study(grid_request(grid_parser().parse_args(["--resume", name, "--storage", str(place.storage)])))
    arguments = ablate_parser().parse_args(["--resume", "a", "--seeds", "4", "--storage", str(place.storage)])
    with pytest.raises(ValueError, match="leave out --seeds"):
        asked_ablation(ablation_request(arguments))
    of_images = ["--ablation", "labels", "--scale", "smoke", "--data", "embedded", "--storage", str(place.storage)]
    asked = asked_ablation(ablation_request(ablate_parser().parse_args(of_images)))
    assert asked.folder.name.startswith("labels-embedded-smoke-")
