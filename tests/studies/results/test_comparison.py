"""The paper's numbers beside ours: what a line says, what is marked, and the formats."""

import math
import re
from collections import defaultdict
from pathlib import Path

import pytest

from launch.reproduce import _parser, main, request_of
from launch.reproduction.cells import Cells, Setting, left_of, ours_of, studies_of
from launch.reproduction.sheets import _other_lines
from launch.reproduction.table_choice import chosen_tables
from launch.studies.images import Images
from launch.studies.requests import ReproductionRequest
from launch.studies.resume_command import REPRODUCE, Resumption
from pcl.config.failure import Failure, FailureKind
from pcl.config.fidelity import Profile
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.paper.comparison import Ours, lines_of, lost_seeds, winner_lines
from pcl.studies.paper.published import published_grids, published_tables, published_titles
from pcl.studies.session.request import RunRequest
from pcl.studies.space.search_space import load_space
from pcl.studies.tracking.finished_trials import Found, Known
from pcl.studies.tracking.tracker import StoreError
from tests.support.services import assert_refused

NAN = Failure(FailureKind.NAN)
RAN_AWAY = {4: Failure(FailureKind.RUNAWAY_KAPPA), 5: NAN}
TABLES = {table.name: table for table in published_tables()}
SMOKE = Setting("reference", "smoke", (4, 5))
# Every label of a table or figure in the paper but fig:overview, a drawing.
LABELS = {
    "tab:toy_correctsetups", "fig:2dplot", "tab:toy_distrfamily", "fig:mc", "tab:bench_results", "fig:encoder_size",
    "tab:bench_cifar", "fig:erc", "tab:cifar_dataset", "fig:unc_retrieval", "tab:contr_exp_params", "tab:hyperparams",
    "fig:highdim", "tab:ablation_shared", "tab:hyperparams_cifar", "tab:cifar_pretraining", "tab:infonce",
    "fig:unc_images",
}  # fmt: skip


def test_every_table_and_figure_is_there() -> None:
    assert set(published_titles()) == LABELS


def asked(tables: list[str], figures: list[str], is_all: bool = False) -> ReproductionRequest:
    words = [*(f"--table={name}" for name in tables), *(f"--figure={name}" for name in figures)]
    return request_of(_parser().parse_args([*words, *(["--all"] if is_all else [])]))


def test_names() -> None:
    names = list(published_titles())
    assert chosen_tables(asked(["infonce", "tab:bench_results"], ["mc"]), names) == [
        "fig:mc", "tab:bench_results", "tab:infonce",
    ]  # fmt: skip
    assert chosen_tables(asked([], [], is_all=True), names) == names
    with pytest.raises(ValueError, match=r"no table 'mc' of the paper here; there are toy_correctsetups, .*infonce"):
        chosen_tables(asked(["mc"], []), names)
    with pytest.raises(ValueError, match="no figure 'bench' of the paper here; there are 2dplot, mc"):
        chosen_tables(asked([], ["bench"]), names)
    with pytest.raises(ValueError, match="must be given"):
        chosen_tables(asked([], []), names)
    with pytest.raises(ValueError, match="`--all` means every table and figure; leave out either it or `--table`"):
        chosen_tables(asked(["mc"], [], is_all=True), names)


def test_what_is_not_run_has_no_number() -> None:
    """A published number is never ours."""
    for table in published_tables():
        for line in lines_of(table, ours_of(table, Cells.of([table], SMOKE), {}, SMOKE)):
            assert line.ours == line.verdict
            assert re.fullmatch(r"not run \[smoke(, not pretrained)?\]", line.ours)
            assert line.seeds == "0"


def of_metric(metric: str, *values: float) -> Ours:
    return Ours({seed: {metric: value} for seed, value in enumerate(values, start=4)})


def test_a_line_by_hand() -> None:
    values = (5.0, 6.0, 7.0, 5.5)
    ours = defaultdict(Ours, {"ambiguous": of_metric("eval/kappa_mae", *values)})
    line = next(line for line in lines_of(TABLES["tab:toy_correctsetups"], ours) if line.what == "κ RMSE")
    mean = sum(values) / 4
    error = math.sqrt(sum((v - mean) ** 2 for v in values) / 3 / 4)
    combined = math.sqrt(0.61**2 + error**2 + 2 * 0.005**2 / 3)  # mean and error are both rounded
    assert line.published == "6.15±0.61"
    assert line.ours == f"{mean:.3f}±{error:.3f}"
    assert line.difference == f"{(mean - 6.15) / combined:+.1f}"
    assert line.verdict == "agrees"
    assert line.seeds == "4"


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((0.97, 0.98, 0.99), "better"),
        ((0.10, 0.12, 0.11), "worse"),
        ((0.80, 0.84, 0.82), "agrees"),
        ((0.97, 0.98), "two seeds"),
        ((0.8,), "one seed"),
    ],
)
def test_verdicts(values: tuple[float, ...], verdict: str) -> None:
    ours = defaultdict(Ours, {"ambiguous": of_metric("eval/kappa_rank_corr", *values)})
    *_, line = lines_of(TABLES["tab:toy_correctsetups"], ours)[:4]
    assert (line.what, line.verdict) == ("κ rank corr.", verdict)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [((0.32, 0.34, 0.36), "agrees"), ((0.08, 0.09, 0.07), "worse"), ((0.08, 0.09), "two seeds"), ((0.3,), "one seed")],
)
def test_verdicts_on_numbers_of_one_fold(values: tuple[float, ...], verdict: str) -> None:
    ours = defaultdict(Ours, {"from scratch": of_metric("test/entropy_rank_corr", *values)})
    lines = lines_of(TABLES["tab:cifar_pretraining"], ours)
    (line,) = [line for line in lines if (line.row, line.what) == ("from scratch", "annotator entropy")]
    assert (line.published, line.verdict) == ("0.31 (one fold)", verdict)


def test_what_is_printed_without_a_number_or_a_size_has_no_verdict() -> None:
    """1e14±1e14 agrees with any error of kappa there is."""
    ours = defaultdict(Ours, {"HIB": of_metric("eval/kappa_mae", 3.0, 3.5, 4.0)})
    line = next(line for line in lines_of(TABLES["tab:bench_results"], ours) if line.what == "κ RMSE")
    assert (line.published, line.ours, line.verdict) == ("1e14±1e14", "3.500±0.289", "no verdict")
    ours = defaultdict(Ours, {"D' = 8": of_metric("eval/kappa_rank_corr", 0.5, 0.6)})
    lines = {(line.row, line.what): line for line in lines_of(TABLES["fig:encoder_size"], ours)}
    assert lines["D' = 8", "κ rank corr."].published == "rank corr. of at least 0.6"
    assert lines["D' = 8", "κ rank corr."].verdict == "no number printed"


def known_of(*found: Found, seeds: tuple[int, ...] = (4, 5)) -> Known:
    return Known(seeds, found)


def test_seeds_that_failed_are_counted_and_told() -> None:
    cells = Cells.of([TABLES["tab:bench_results"]], SMOKE)
    key = cells.keys["tab:bench_results", "ELK"]
    lost = {5: Failure(FailureKind.LOSS_NOT_FINITE, "nan")}
    found = {key: known_of(Found("s", "r", {4: {"eval/mu_mae": 0.1}, 5: {"eval/mu_mae": 0.9}}, lost))}
    ours = ours_of(TABLES["tab:bench_results"], cells, found, SMOKE)
    line = next(line for line in lines_of(TABLES["tab:bench_results"], ours) if line.row == "ELK")
    assert (line.ours, line.seeds) == ("0.100 [smoke]", "1 of 2")
    assert lost_seeds(ours) == "Seeds that failed and are in no mean: ELK, 1 of 2 (the loss is nan)."
    assert lost_seeds({"ELK": Ours({4: {}}, n_asked=1)}) == ""


EMBEDDED = Images({"task.data": "embedded", "encoder.weights": "some.pt"}, "embedded-0123456789abcdef", None)
SCRATCH = Images({"task.data": "cifar10h", "encoder.weights": ""}, "cifar10h-0123456789abcdef", None)


@pytest.mark.parametrize(
    ("setting", "mark"),
    [
        (Setting("reference", "smoke", (4, 5), images=EMBEDDED), " [smoke, embedded]"),
        (Setting("reference", "paper", (4, 5), images=EMBEDDED), " [embedded]"),
        (Setting("reference", "paper", (4, 5), {"training.lr": 0.1}, EMBEDDED), " [embedded, changed]"),
        (Setting("reference", "paper", (4, 5), images=SCRATCH), " [not pretrained]"),
    ],
)
def test_reduced_cells_are_all_marked(setting: Setting, mark: str) -> None:
    table = TABLES["tab:bench_cifar"]
    cells = Cells.of([table], setting)
    values = dict.fromkeys(table.columns, 0.3)
    found = {key: known_of(Found("s", "r", {4: values, 5: values}, {})) for key in cells.trials}
    for line in lines_of(table, ours_of(table, cells, found, setting)):
        assert all(cell.endswith(mark) for cell in (line.ours, line.difference, line.verdict))


def test_the_row_from_scratch_is_as_published_without_weights() -> None:
    table, setting = TABLES["tab:cifar_pretraining"], Setting("reference", "paper", (4, 5), images=SCRATCH)
    ours = ours_of(table, Cells.of([table], setting), {}, setting)
    assert (ours["with pretraining"].mark, ours["from scratch"].mark) == (" [not pretrained]", "")


def test_what_ran_away_and_what_is_not_possible() -> None:
    cells = Cells.of([TABLES["tab:bench_results"]], SMOKE)
    key = cells.keys["tab:bench_results", "HIB"]
    found = {key: known_of(Found("s", "r", {4: {"eval/mu_mae": 9.0}}, RAN_AWAY))}
    ours = ours_of(TABLES["tab:bench_results"], cells, found, SMOKE)
    line = lines_of(TABLES["tab:bench_results"], ours)[0]
    assert line.ours.startswith("runaway kappa")
    assert line.verdict == "ran away [smoke]"
    exact = Setting("exact", "smoke", (4, 5))
    images = TABLES["tab:cifar_dataset"]
    lines = lines_of(images, ours_of(images, Cells.of([images], exact), {}, exact))
    none = {line.row for line in lines if line.ours.startswith("not possible: `loss.partners=integrated` stands for")}
    assert none == {"CIFAR-10H hard", "CIFAR-10 hard"}  # in-batch negatives


def test_small_networks_are_trained_first(tmp_path: Path) -> None:
    cells = Cells.of([TABLES["fig:highdim"], TABLES["fig:encoder_size"], TABLES["tab:bench_cifar"]], SMOKE)
    toy, images = studies_of(list(cells.trials.values()), SMOKE, Storage(tmp_path))
    widths = [trial.config["encoder.dim"] for trial in toy.strategy.trials]
    assert widths == sorted(widths)
    assert (widths[0], widths[-1], len(widths) + len(images.strategy.trials)) == (4, 128, len(cells.trials))


def test_only_seeds_that_are_missing_are_trained() -> None:
    table, setting = TABLES["tab:bench_results"], Setting("reference", "smoke", (4, 5, 6))
    cells = Cells.of([table], setting)
    whole, part = (cells.keys[table.name, row] for row in ("HIB", "ELK"))
    values = dict.fromkeys(table.columns, 0.3)
    found = {
        whole: known_of(Found("s", "r", dict.fromkeys((4, 5, 6), values), {}), seeds=setting.seeds),
        part: known_of(
            Found("s", "r", {4: values, 9: values}, {}), Found("t", "q", {4: {}, 6: values}, {6: NAN}),
            seeds=setting.seeds,
        ),
    }  # fmt: skip
    left = {trial.varied["cell"]: trial for trial in left_of(cells, found)}
    assert {name: trial.seeds for name, trial in left.items()} == {
        "bench_results, ELK": (5,), "bench_results, MCInfoNCE": (4, 5, 6),
    }  # fmt: skip
    assert left["bench_results, ELK"].config == cells.trials[part].config
    lines = {line.row: line for line in lines_of(table, ours_of(table, cells, found, setting))}
    assert (lines["ELK"].seeds, lines["HIB"].seeds) == ("1 of 3", "3")
    assert set(found[part].by_seed) == {4, 6}  # of what was asked; of seed 4, the first trial's
    assert found[part].by_seed[4] == values


def test_sizes_at_full_scale_are_the_printed_ones() -> None:
    lines = _other_lines("tab:contr_exp_params", [], Setting("paper", "paper", (4,)))
    assert len(lines) == 26 * 8 - 2
    assert {line.verdict for line in lines} == {"same"}
    of_scripts = _other_lines("tab:contr_exp_params", [], Setting("reference", "paper", (4,)))
    differing = {(line.row, line.what, line.published, line.ours) for line in of_scripts if line.verdict == "differs"}
    rows = ("high dim, 10", "high dim, 16")
    assert differing == {(row, what, "512", "256") for row in rows for what in ("batch size", "K")}
    assert "differs [smoke]" in {line.verdict for line in _other_lines("tab:contr_exp_params", [], SMOKE)}


def test_wide_encoders_have_the_negatives_of_the_scripts_under_reference() -> None:
    cells = {"fig:encoder_size": ("D' = 32", "D' = 64", "D' = 128"), "fig:highdim": ("D = 64",)}
    for profile, n in (("reference", 8), ("paper", 32)):
        found = {
            (table, row.name): row.config(profile, "paper")["training.n_negatives"]
            for table in cells
            for row in TABLES[table].rows
        }
        others = {found[table, row] for table, row in found if row not in cells[table]}
        assert {found[table, row] for table, rows in cells.items() for row in rows} == {n}
        assert others == {32}


@pytest.mark.parametrize("profile", Profile)
def test_rows_are_trained_to_the_end_however_large_kappa_is(profile: Profile) -> None:
    row = TABLES["tab:toy_correctsetups"].rows[0]
    assert row.config(profile.value, "paper")["training.kappa_limit"] == "inf"


def test_winners_of_grids() -> None:
    for grid in published_grids():
        assert all(load_space(name).published for name in grid.spaces)
    published = load_space("toy_mcinfonce").published
    ours = {**published, "M": "1"}
    lines = winner_lines("MCInfoNCE", published, ours, "", " [smoke]")
    assert [line.verdict for line in lines] == ["differs [smoke]", "same [smoke]", "same [smoke]"]
    assert {line.ours for line in winner_lines("x", published, None, "not run", "")} == {"not run"}


def test_settings_that_a_row_cannot_have_are_refused() -> None:
    tables = [TABLES["tab:toy_correctsetups"]]
    with pytest.raises(ValueError, match=r"`--set` is not possible for 'ambiguous' of tab:toy_correctsetups: `"):
        Cells.of(tables, Setting("reference", "smoke", (4, 5), {"training.n_batches": -3}))
    exact = Cells.of([TABLES["tab:cifar_dataset"]], Setting("exact", "smoke", (4, 5), {"training.lr": 0.1}))
    assert len(exact.impossible) == 2  # as it is without the setting
    with pytest.raises(ValueError, match=r"`--set loss\.n_samples` must not set what rows of fig:mc do; leave it out"):
        Cells.of([TABLES["fig:mc"]], Setting("reference", "smoke", (4, 5), {"loss.n_samples": 64}))


@pytest.mark.parametrize("words", [("--time-budget", "-5"), ("--time-budget", "0"), ("--cpus-per-trial", "nan")])
def test_amounts_that_are_none_are_refused(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(["--all", *words])
    assert ended.value.code == 2
    assert f"argument {words[0]}: must be " in capsys.readouterr().err


def test_a_store_that_fails_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*_: object) -> None:
        raise StoreError("disk I/O error")

    monkeypatch.setattr("launch.reproduction.command.recorded", failing)
    words = ["--table", "toy_correctsetups", "--scale", "smoke", "--storage", str(tmp_path), "--plan"]
    assert_refused("launch/reproduce.py", main, words, "mlflow.db cannot be used: disk I/O error", monkeypatch, capsys)
    resumption = Resumption(REPRODUCE, RunRequest(Storage(tmp_path)))
    with pytest.raises(SystemExit) as ended, resumption.mended("python launch/reproduce.py --all"):
        failing()
    assert ended.value.code == 1
    told = "disk I/O error; once that is fixed, `python launch/reproduce.py --all` goes on.\n"
    assert capsys.readouterr().err == f"launch/reproduce.py: {told}"
