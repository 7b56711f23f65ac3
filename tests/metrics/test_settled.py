"""Seeds whose kappa ran away: what of them counts, and where that is what the paper says."""

import pytest

from launch.reproduction.cells import Cells, Setting, ours_of
from pcl.config.failure import Failure, FailureKind
from pcl.studies.paper.comparison import lines_of, lost_seeds
from pcl.studies.paper.published import published_tables, settled
from pcl.studies.space.ablation import load_ablation
from pcl.studies.tracking.finished_trials import Found, Known

NAN = Failure(FailureKind.NAN, "at batch 4")
TABLES = {table.name: table for table in published_tables()}


def known_of(found: Found) -> Known:
    return Known((4, 5), (found,))


def test_mu_counts_that_was_trained_before_kappa_ran_away() -> None:
    table, setting = TABLES["tab:toy_correctsetups"], Setting("reference", "paper", (4, 5))
    cells = Cells.of([table], setting)
    values = {"eval/mu_mae": 0.05, "eval/kappa_mae": 1e7, "eval/kappa_rank_corr": 0.1, "eval/kappa_median": 1e7}
    causes = dict.fromkeys((4, 5), Failure(FailureKind.RUNAWAY_KAPPA, "its median 1e+07"))
    found = {
        cells.keys[table.name, "injective"]: known_of(Found("s", "r", {4: values, 5: values}, causes)),
        cells.keys[table.name, "clear"]: known_of(Found("s", "r", {4: values, 5: values}, {5: causes[5]})),
        cells.keys[table.name, "ambiguous"]: known_of(Found("s", "r", {4: values, 5: values}, {5: NAN})),
    }
    ours = ours_of(table, cells, found, setting)
    lines = {(line.row, line.what): line for line in lines_of(table, ours)}
    assert (lines["injective", "μ RMSE"].ours, lines["injective", "μ RMSE"].seeds) == ("0.050±0.000", "2")
    assert (lines["injective", "κ RMSE"].ours, lines["injective", "κ RMSE"].seeds) == (str(causes[4]), "0 of 2")
    assert lines["injective", "κ RMSE"].verdict == lines["injective", "κ rank corr."].verdict == "agrees"
    assert (lines["clear", "μ RMSE"].seeds, lines["clear", "κ RMSE"].seeds) == ("2", "1 of 2")
    assert lines["ambiguous", "μ RMSE"].seeds == "1 of 2"
    assert lost_seeds(ours) == (
        "Seeds that failed and are in no mean: ambiguous, 1 of 2 (the encoder returns NaN at batch 4). "
        "Seeds whose κ ran away once μ was trained, and that are in its means: clear, 1 of 2; injective, 2 of 2."
    )
    one = {4: causes[4], 5: NAN}
    found[cells.keys[table.name, "injective"]] = known_of(Found("s", "r", {4: values, 5: values}, one))
    lines = {(line.row, line.what): line for line in lines_of(table, ours_of(table, cells, found, setting))}
    assert lines["injective", "κ RMSE"].verdict == "ran away"
    assert lines["injective", "κ RMSE"].ours == f"{causes[4]}; {NAN}"


def test_runs_of_tables_and_ablations_go_on_whatever_their_kappa() -> None:
    """Under every profile; a kappa that has grown without bound is then what the paper says of the injective one."""
    table = TABLES["tab:toy_correctsetups"]
    for profile in ("paper", "reference", "exact"):
        setting = Setting(profile, "paper", (4, 5, 6))
        cells = Cells.of([table], setting)
        assert {trial.config["training.kappa_limit"] for trial in cells.trials.values()} == {"inf"}
        trials = load_ablation("ambiguity").cells(profile, "paper", (4, 5, 6)).trials.values()
        assert {trial.key for trial in trials} == set(cells.trials)
    limited = Setting("reference", "paper", (4, 5, 6), {"training.kappa_limit": 1e6})
    assert {t.config["training.kappa_limit"] for t in Cells.of([table], limited).trials.values()} == {1e6}
    setting = Setting("reference", "paper", (4, 5, 6))
    cells = Cells.of([table], setting)
    for median, verdict in ((3e7, "agrees"), (300.0, "no number printed")):
        by_seed = {seed: {"eval/mu_mae": 0.05, "eval/kappa_median": median} for seed in (4, 5, 6)}
        found = {cells.keys[table.name, "injective"]: Known((4, 5, 6), (Found("s", "r", by_seed, {}),))}
        lines = {(line.row, line.what): line for line in lines_of(table, ours_of(table, cells, found, setting))}
        assert lines["injective", "κ RMSE"].verdict == lines["injective", "κ rank corr."].verdict == verdict
        assert lines["injective", "κ RMSE"].ours.startswith("median κ ")
        assert lines["injective", "μ RMSE"].verdict == "agrees"


def test_seeds_that_are_yet_to_run_are_told_beside_the_cause_of_those_that_failed() -> None:
    table, setting = TABLES["fig:encoder_size"], Setting("reference", "paper", (4, 5, 6))
    cells = Cells.of([table], setting)
    of_two = {seed: Failure(FailureKind.RUNAWAY_KAPPA, f"{seed}e+07 at batch {seed}") for seed in (4, 5)}
    found = {cells.keys[table.name, "D' = 64"]: known_of(Found("s", "r", {4: {}, 5: {}}, of_two))}
    ours = ours_of(table, cells, found, setting)
    assert lost_seeds(ours) == "Seeds that have not run: D' = 64, 1 of 3."
    lines = {line.row: line for line in lines_of(table, ours)}
    line = lines["D' = 64"]
    assert line.ours == f"{of_two[4]}; 1 of 3 seeds not run"
    assert (line.seeds, line.verdict) == ("0 of 3", "ran away")
    assert lines["D' = 128"].ours == "not run"


@pytest.mark.parametrize(
    "changed", [{"training.phases": "joint"}, {"training.phases": "mu kappa mu kappa"}, {"encoder.backbone": "shared"}]
)
def test_mu_does_not_count_that_was_still_to_be_trained(changed: dict[str, str]) -> None:
    metrics, failure = (
        {"eval/mu_mae": 0.05, "eval/kappa_mae": 1e7},
        Failure(FailureKind.RUNAWAY_KAPPA, "its median 1e+07"),
    )
    config = {"training.phases": "mu kappa", "encoder.backbone": "independent"}
    assert settled(metrics, failure, config) == {"eval/mu_mae": 0.05}
    assert settled(metrics, NAN, config) == {}
    assert settled(metrics, failure, {**config, **changed}) == {}
