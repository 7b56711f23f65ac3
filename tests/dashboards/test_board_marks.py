"""What the board says of results that are not as published, or not all there: reduced, failed in part, failed."""

import math
import re
from html import unescape

from dashboards.board.html.frame import PageContext
from dashboards.board.pages.ablation import ablation_page
from dashboards.board.pages.overview import overview_page
from dashboards.board.pages.paper_runs import Setting, ours_of
from dashboards.board.pages.scoreboard import scoreboard_page
from dashboards.board.pages.study import study_page
from dashboards.board.pages.winner import winner_page
from dashboards.board.store.records import Run, Study, Trial
from pcl.config.failure import failure_of_old_sentence
from pcl.presentation.numbers import MISSING
from pcl.studies.paper.published import Row, published_tables
from pcl.studies.space.numerics_version import MATHS_VERSION
from pcl.studies.tracking.tags import RunState

ROWS = {(table.name, row.name): row for table in published_tables() for row in table.rows}
SEEDS = (4, 5, 6, 7, 8)
AROUND = PageContext(now_ms=10**12)


def trial_of(row: Row, scale: str, values: dict[int, float], causes: dict[int, str], **params: str) -> Trial:
    """A trial of a row with a metric of every seed, some of which have failed."""
    config = {path: str(value) for path, value in row.config("reference", scale).items()}
    config |= {path.replace("__", "."): value for path, value in params.items()}
    metric = "eval/kappa_rank_corr" if row.task == "toy" else "test/crop_rank_corr"
    is_lost = len(causes) == len(values)
    tags = {"pcl.maths": str(MATHS_VERSION), **({"pcl.cause": "; ".join(causes.values())} if is_lost else {})}
    run = Run(
        f"{abs(hash((row.name, scale))):032x}"[:32],
        "1",
        row.name,
        RunState.FAILED if is_lost else RunState.FINISHED,
        1,
        2,
        tags,
    )
    run.params = config
    seeds = [
        Run(
            f"{seed:032x}",
            "1",
            f"seed={seed}",
            RunState.FINISHED,
            1,
            2,
            {"pcl.seed": str(seed)},
            {metric: value},
            config,
        )
        for seed, value in values.items()
    ]
    for seed in seeds:
        seed.tags |= {"pcl.cause": causes[int(seed.tags["pcl.seed"])]} if int(seed.tags["pcl.seed"]) in causes else {}
    return Trial(run, seeds)


def cells(page: str, row: str, metric: str) -> list[list[str]]:
    """The cells of a row's lines, as text."""
    lines = re.findall(r"<tr[^>]*><th scope=\"row\"[^>]*>(.*?)</tr>", page)
    told = [[unescape(re.sub(r"<[^>]*>", "", cell)) for cell in re.split(r"</t[hd]>", line)] for line in lines]
    return [line for line in told if line[:2] == [row, metric]]


def test_failed_seeds_are_counted_and_failed_trials_are_not_unrun() -> None:
    hib, elk = ROWS["tab:bench_results", "HIB"], ROWS["tab:bench_results", "ELK"]
    trials = [
        trial_of(elk, "paper", {4: 0.9, 5: 0.92, 6: 0.5}, {6: "NaN in the loss"}),
        trial_of(hib, "paper", {4: 0.1, 5: 0.2}, {4: "runaway kappa <b>", 5: "runaway kappa"}),
    ]
    page = scoreboard_page(trials, SEEDS, AROUND)
    (of_elk,) = cells(page, "ELK", "κ rank corr.")
    assert of_elk[3:5] == ["0.910 ± 0.010", "2 of 3"]
    (of_hib,) = cells(page, "HIB", "κ rank corr.")
    assert of_hib[3:7] == ["runaway kappa <b>; runaway kappa", "0 of 2", "", "failed"]
    assert "<b>:" not in page
    assert "kappa &lt;b&gt;" in page


def test_a_trial_of_one_seed_that_failed_is_as_one_of_several() -> None:
    row = ROWS["tab:toy_correctsetups", "injective"]
    cause = "runaway kappa: its median 5e+07"
    several = trial_of(row, "paper", {4: 0.1, 5: 0.2}, {4: cause, 5: cause})
    tags = {"pcl.seed": "4", "pcl.cause": f"seed 4: {cause}", "pcl.maths": str(MATHS_VERSION)}
    lone = Trial(Run("a" * 32, "1", "lone", RunState.FAILED, 1, 2, tags))
    lone.run.params, lone.run.metrics = several.run.params, {"eval/mu_mae": 0.05}
    several.seeds[0].metrics = lone.run.metrics
    (ours,) = ours_of(row, [lone], (4,)).values()
    (others,) = ours_of(row, [several], (4,)).values()
    assert ours.settled == others.settled == {"4": {"eval/mu_mae": 0.05}}
    assert ours.failures == others.failures == {"4": failure_of_old_sentence(cause)}


def test_of_a_seed_counts_the_trial_with_most_and_none_of_other_mathematics() -> None:
    row = ROWS["tab:bench_results", "ELK"]
    alone, older, both = (
        trial_of(row, "paper", values, {}) for values in ({4: 0.1}, {4: 0.2, 5: 0.2, 6: 0.2}, {4: 0.9, 5: 0.8})
    )
    older.run.tags["pcl.maths"] = str(MATHS_VERSION - 1)
    (found,) = ours_of(row, [alone, older, both], SEEDS).values()
    assert {seed: metrics["eval/kappa_rank_corr"] for seed, metrics in found.metrics.items()} == {"4": 0.9, "5": 0.8}
    assert found.runs == [both.run]


def test_not_run_is_what_has_no_run() -> None:
    """A metric that finished runs lack is not measured; a run that has not ended is unfinished."""
    trial = trial_of(ROWS["tab:bench_results", "ELK"], "paper", {4: 0.9, 5: 0.92, 6: 0.5}, {})
    trial.seeds[0].metrics["eval/mu_mae"] = math.inf
    begun = trial_of(ROWS["tab:bench_results", "HIB"], "paper", {4: 0.9}, {})
    begun.run.status = RunState.RUNNING
    page = scoreboard_page([trial, begun], SEEDS, AROUND)
    (of_kappa,), (of_mu,) = cells(page, "ELK", "κ RMSE"), cells(page, "ELK", "μ RMSE")
    assert of_kappa[3:7] == [MISSING, "0", "", "not measured"]
    assert of_kappa[7].endswith("reference · paper · toy")
    assert of_mu[3:7] == ["∞", "0", "", "not measured"]
    assert cells(page, "HIB", "κ RMSE")[0][3:7] == [MISSING, "", "", "unfinished"]
    assert cells(page, "ambiguous", "κ RMSE")[0] == ["ambiguous", "κ RMSE", "6.15 ± 0.61", ""]  # published alone
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert (facts["of this store"], facts["of the published size and images"]) == ("1", "1")
    assert (facts["not measured"], facts["unfinished"]) == ("3", "4")


def test_what_is_said_of_rank_correlations_stands_beside_them_alone() -> None:
    page = scoreboard_page([], SEEDS, AROUND)
    assert cells(page, "D' = 8", "κ rank corr.")[0][2] == "rank corr. of at least 0.6"
    assert cells(page, "D' = 8", "κ RMSE")[0][2] == "not printed"
    assert cells(page, "D = 40", "κ RMSE")[0][2] == "metrics worsen"


def test_tables_without_results_say_how_to_get_them() -> None:
    page = scoreboard_page([], SEEDS, AROUND)
    for name in ("contr_exp_params", "hyperparams", "hyperparams_cifar"):
        assert f"<code>python launch/reproduce.py --table {name}</code>" in page
    assert 'class="state not run"' not in page
    for name in ("--table bench_results", "--figure mc"):  # and so do those that nothing is known of
        assert page.count(f"<code>python launch/reproduce.py {name}</code>") == 1


def test_a_kappa_without_bound_is_what_is_published_of_injective_truths() -> None:
    trial = trial_of(ROWS["tab:toy_correctsetups", "injective"], "paper", {4: 0.1, 5: 0.2}, dict.fromkeys(
        (4, 5), "runaway kappa: its median 1e+07"))  # fmt: skip
    for seed, value in zip(trial.seeds, (0.05, 0.07), strict=True):
        seed.metrics["eval/mu_mae"] = value
    page = scoreboard_page([trial], SEEDS, AROUND)
    (of_kappa,) = cells(page, "injective", "κ RMSE")
    assert of_kappa[2:7] == ["κ grows without bound", "runaway kappa: its median 1e+07", "0 of 2", "", "agrees"]
    (of_mu,) = cells(page, "injective", "μ RMSE")
    assert of_mu[3:5] == ["0.060 ± 0.010", "2"]


def test_what_is_not_as_published_is_marked_and_does_not_count_as_agreement() -> None:
    row, image = ROWS["tab:toy_correctsetups", "ambiguous"], ROWS["tab:bench_cifar", "HIB"]
    values = {4: 0.80, 5: 0.84, 6: 0.82}
    scratch = trial_of(image, "paper", {4: 0.7, 5: 0.68}, {}, task__data="cifar10h", encoder__weights="")
    page = scoreboard_page([trial_of(row, "smoke", values, {}), scratch], SEEDS, AROUND)
    (line,) = cells(page, "ambiguous", "κ rank corr.")
    assert (line[3], line[6]) == ("0.820 ± 0.012 smoke", "agrees within 0.084 smoke")
    (of_image,) = [line for line in cells(page, "HIB", "crop size") if len(line) > 4]
    assert of_image[3].endswith(" not pretrained")
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert (facts["of the published size and images"], facts["of these agree"]) == ("0", "0")
    whole = scoreboard_page([trial_of(row, "paper", values, {})], SEEDS, AROUND)
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", whole))
    assert int(facts["of these agree"]) == int(facts["of the published size and images"]) > 0


def test_runs_with_and_without_pretrained_weights_are_not_mixed() -> None:
    row = ROWS["tab:cifar_pretraining", "with pretraining"]
    trials = [
        trial_of(row, "paper", {4: 0.7}, {}, task__data="cifar10h", encoder__weights=weights)
        for weights in ("", "resnet18-w64-0123456789abcdef")
    ]
    found = ours_of(row, trials, SEEDS)
    assert {setting.mark for setting in found} == {"", "not pretrained"}
    assert Setting("paper", "smoke", "embedded", True).mark == "smoke, embedded, not pretrained"


def test_an_ablation_says_what_failed_and_at_which_scale() -> None:
    tags = {
        "pcl.study": "s", "pcl.ablation": "loss", "pcl.scale": "smoke", "pcl.fidelity": "paper", "pcl.data": "toy",
        "pcl.objective": "eval/kappa_rank_corr", "pcl.kind": "study",
    }  # fmt: skip
    study = Study(Run("a" * 32, "1", "s", RunState.RUNNING, 1, 0, tags))
    for name, shift in (("MCInfoNCE", 0.0), ("ELK", 0.1)):
        found = trial_of(ROWS["tab:bench_results", name], "smoke", {4: 0.5 + shift, 5: 0.6 + 2 * shift}, {})
        found.run.metrics["objective"] = 0.5
        study.trials.append(found)
    study.trials.append(trial_of(ROWS["tab:bench_results", "HIB"], "smoke", {4: 0.0}, {4: "runaway <i>"}))
    page = ablation_page(study, AROUND)
    assert "Failed, and not shown: <b>HIB</b>: runaway &lt;i&gt;" in page
    assert "<dt>scale</dt><dd>smoke</dd>" in page
    assert "python launch/ablate.py --resume s" in study_page(study, {}, AROUND)  # it has been silent for long


def test_what_chooses_nothing_has_no_winner_and_commands_that_work() -> None:
    """Of ablations neither best.yaml nor a checkpoint is kept; of what was taken over, elsewhere."""
    found = trial_of(ROWS["tab:bench_results", "ELK"], "smoke", {4: 0.5, 5: 0.6}, {})
    found.run.metrics["objective"], found.run.tags["pcl.trial"] = 0.55, "key"
    pages = {}
    for name, tags in {"search": {}, "reused": {}, "ablation": {"pcl.ablation": "loss"}}.items():
        found.run.tags["pcl.reused_from"] = "other" if name == "reused" else ""
        study = Study(
            Run("a" * 32, "1", name, RunState.FINISHED, 1, 2, {"pcl.objective": "eval/kappa_rank_corr", **tags}),
            [found],
        )
        pages[name] = winner_page(study, [], AROUND)
        assert ("nothing is chosen" in overview_page([study], AROUND)) == (not study.selects)
    assert "Winner of search" in pages["search"]
    assert "--artifact-path checkpoint.pt" in pages["search"]
    assert "runs/other/trials/key/checkpoint.pt" in pages["reused"]
    assert "--artifact-path checkpoint.pt" not in pages["reused"]
    ablation = pages["ablation"]
    assert "Best trial of ablation" in ablation
    assert "best.yaml" not in ablation
    assert "--artifact-path checkpoint.pt" not in ablation
    assert f"--run-id {found.run.id} --artifact-path config.yaml" in ablation
    assert "report seeds, mean" in ablation
    assert "No figures are recorded: none is drawn where nothing is chosen." in ablation
