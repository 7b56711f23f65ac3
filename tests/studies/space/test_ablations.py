"""Ablations as data: what they vary, what they share, and how differences are taken."""

import csv
import io
import math
from pathlib import Path

import pytest
import torch
from scipy import stats

from launch.reproduction.cells import Setting, trial_of
from pcl.config.fidelity import RELEASE, SETTINGS, TO_THE_END, Profile
from pcl.config.run_config import RunConfig
from pcl.studies.paper.published import published_tables
from pcl.studies.report.paired_table import Reached, as_csv, as_text, compared
from pcl.studies.space.ablation import (
    OWN,
    SEEDS,
    WITHOUT_EFFECT,
    Ablation,
    Variant,
    ablation_names,
    load_ablation,
    seeds_at,
    values,
)
from pcl.training.run import Run


def test_every_ablation_of_the_paper_is_there() -> None:
    assert ablation_names() == [
        "ambiguity", "encoder_dim", "exact_factors", "exact_limits", "fidelity", "fidelity_elk", "fidelity_hib",
        "fidelity_images", "labels", "latent_dim", "latent_sampler", "loss", "loss_images", "mc_samples",
        "n_negatives", "posterior_family", "pretraining", "shared_backbone", "uncertainty_baselines",
    ]  # fmt: skip
    assert all(load_ablation(name).name == name for name in ablation_names())


@pytest.mark.parametrize(
    ("name", "path", "expected"),
    [
        ("mc_samples", "loss.n_samples", [1, 4, 16, 64, 256, 512]),
        ("encoder_dim", "encoder.dim", [4, 8, 10, 16, 32, 64, 128]),
        ("latent_dim", "task.dim", [10, 16, 32, 40, 48, 56, 64]),
        ("latent_sampler", "task.sampler", ["exact", "released"]),
        ("posterior_family", "task.family", ["gaussian", "laplace", "vmf"]),
        ("shared_backbone", "encoder.backbone", ["independent", "shared"]),
        ("loss", "loss_name", ["elk", "hib", "info_nce", "mc_info_nce"]),
        ("labels", "task.labels", ["cifar10_hard", "hard", "soft"]),
    ],
)
def test_the_values_that_reach_the_runs(name: str, path: str, expected: list[object]) -> None:
    trials = load_ablation(name).cells("reference", "paper", SEEDS).trials.values()
    assert sorted(trial.config[path] for trial in trials) == expected  # type: ignore[type-var]
    assert len({trial.key for trial in trials}) == len(expected)


def test_negatives() -> None:
    trials = load_ablation("n_negatives").cells("reference", "paper", SEEDS).trials
    assert trials["0"].config["training.negatives"] == "in_batch"
    assert [trials[m].config["training.n_negatives"] for m in ("1", "8", "32", "128")] == [1, 8, 32, 128]


def test_cells_that_tables_share_are_one() -> None:
    """The "ambiguous" baseline is in many tables and ablations: one key, which runs once."""
    setting = Setting("reference", "paper", SEEDS)
    tables = {table.name: {row.name: row for row in table.rows} for table in published_tables()}
    in_tables = {
        trial_of(table, row, setting).key
        for table in published_tables()
        for row in table.rows
        if row.name in ("ambiguous", "K = 512", "D' = 10", "D = 10, sizes of the text", "independent networks", "vMF")
        or (table.name, row.name) == ("tab:bench_results", "MCInfoNCE")
    }
    names = ("mc_samples", "encoder_dim", "n_negatives", "posterior_family", "ambiguity",
             "shared_backbone", "loss", "fidelity")  # fmt: skip
    baselines = {(a := load_ablation(n)).cells("reference", "paper", SEEDS).trials[a.baseline].key for n in names}
    assert len(in_tables | baselines) == 1
    ours = load_ablation("encoder_dim").cells("reference", "paper", SEEDS).trials["128"]
    fig = next(table for table in published_tables() if table.name == "fig:encoder_size")
    assert ours.key == trial_of(fig, tables["fig:encoder_size"]["D' = 128"], setting).key
    for name, figure, column in (("encoder_dim", "fig:encoder_size", "D'"), ("latent_dim", "fig:highdim", "D")):
        fig = next(table for table in published_tables() if table.name == figure)
        for label, trial in load_ablation(name).cells("reference", "paper", SEEDS).trials.items():
            assert trial.key == trial_of(fig, tables[figure][f"{column} = {label}"], setting).key
    ours = load_ablation("latent_sampler").cells("reference", "paper", SEEDS).trials["released"]
    fig = next(table for table in published_tables() if table.name == "fig:highdim")
    assert ours.key == trial_of(fig, tables["fig:highdim"]["D = 40"], setting).key


@pytest.mark.parametrize(
    ("name", "of_text", "of_scripts"),
    [
        ("encoder_dim",
         {"32": (32, 512, 512), "64": (32, 256, 512), "128": (32, 256, 256), "16": (32, 512, 512)},
         {"32": (8, 512, 512), "64": (8, 256, 512), "128": (8, 256, 256), "16": (32, 512, 512)}),
        ("latent_dim",
         {"10": (32, 512, 512), "16": (32, 512, 512), "56": (32, 256, 256), "64": (32, 256, 256)},
         {"10": (32, 256, 256), "16": (32, 256, 256), "56": (32, 256, 256), "64": (8, 256, 256)}),
    ],
)  # fmt: skip
def test_sizes_of_the_scripts_under_reference_and_of_the_text_elsewhere(
    name: str, of_text: dict[str, tuple[int, ...]], of_scripts: dict[str, tuple[int, ...]]
) -> None:
    for profile, expected in (("paper", of_text), ("reference", of_scripts)):
        trials = load_ablation(name).cells(profile, "paper", SEEDS).trials
        for label, sizes in expected.items():
            paths = ("training.n_negatives", "loss.n_samples", "training.batch_size")
            assert tuple(trials[label].config[path] for path in paths) == sizes
    smoke = load_ablation(name).cells("reference", "smoke", SEEDS).trials
    assert {trial.config["training.n_negatives"] for trial in smoke.values()} == {4}


@pytest.mark.parametrize("profile", [profile.value for profile in Profile])
def test_fidelity_flips_every_setting_alone(profile: str) -> None:
    ablation = load_ablation("fidelity")
    cells = ablation.cells(profile, "paper", SEEDS)
    base = cells.trials["none"].config
    for label, trial in cells.trials.items():
        if label != "none":
            changed = [path for path, value in trial.config.items() if base[path] != value]
            # A version of the release sets what the versions differ in.
            (path,) = [RELEASE] if RELEASE in changed else changed
            assert label == f"{path}={trial.config[path]}"
    reader = RunConfig.of(profile=profile)
    for setting in SETTINGS:
        if setting.path in WITHOUT_EFFECT:
            assert not any(label.startswith(f"{setting.path}=") for label in (*cells.trials, *cells.left_out))
        elif setting.loss in ("", "mc_info_nce") and setting.task in ("", "toy") and setting.path in reader.paths():
            values_of = [*(setting.of(other) for other in Profile), *setting.others]
            others = {reader.read(setting.path, value) for value in values_of} - {base[setting.path]}
            for value in others:
                label = f"{setting.path}={value}"
                assert label in cells.trials or cells.left_out[label] not in ("", OWN)


def test_every_named_setting_is_flipped_in_some_ablation() -> None:
    """Or said not to be possible alone; those of other losses and of images have ablations of their own."""
    names = ("fidelity", "fidelity_hib", "fidelity_elk", "fidelity_images")
    found = [load_ablation(name).cells(profile, "paper", SEEDS) for name in names for profile in ("paper", "reference")]
    flipped = {label.partition("=")[0] for cells in found for label in [*cells.trials, *cells.left_out]}
    assert {setting.path for setting in SETTINGS} - set(WITHOUT_EFFECT) <= flipped
    hib, elk, images = (load_ablation(name).cells("reference", "paper", SEEDS) for name in names[1:])
    assert set(hib.trials) == {
        "none", "loss.expectation=log_of_mean", "loss.negative_weight=one_over_n",
    }  # fmt: skip
    assert set(elk.trials) == {"none", "loss.negatives=given", "loss.normalizer=exact"}
    of_images = {
        "task.negative_weights",
        "task.negative_pool",
        "task.folds",
        "task.crops",
        "training.lr_schedule",
        "encoder.head",
        "encoder.kappa_phase",
    }
    assert of_images <= {label.partition("=")[0] for label in images.trials}
    rows = {(table.name, row.name): (table, row) for table in published_tables() for row in table.rows}
    setting = Setting("reference", "paper", SEEDS)
    for cells, row in ((hib, "HIB"), (elk, "ELK")):
        assert cells.trials["none"].key == trial_of(*rows["tab:bench_results", row], setting).key  # runs once


def test_the_factors_of_the_recipe_are_all_combinations_that_are_possible() -> None:
    cells = load_ablation("exact_factors").cells("exact", "paper", SEEDS)
    assert cells.trials["guided pool joint integrated"].config == RunConfig.of(TO_THE_END, profile="exact").flat()
    assert (len(cells.trials), len(cells.left_out)) == (12, 4)
    assert all("guided" in label and "drawn" in label for label in cells.left_out)
    assert all("integrated where anchors are guided" in reason for reason in cells.left_out.values())


def test_a_smaller_scale_has_no_variants_that_are_the_profile_itself() -> None:
    cells = load_ablation("fidelity").cells("reference", "smoke", seeds_at("smoke"))
    assert cells.left_out["training.n_negatives=32"] == OWN
    assert "training.n_negatives=1024" in cells.trials


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"variant '2': Unknown path 'loss.n_sample'. Did you mean 'loss.n_samples'"):
        Ablation("a", "?", "x", "1", {"1": Variant(), "2": Variant({"loss.n_sample": 2})})
    with pytest.raises(ValueError, match="must have its baseline '3'"):
        Ablation("a", "?", "x", "3", values("loss.n_samples", 1, 2))
    with pytest.raises(ValueError, match=r"The ablation 'mc_samples' varies loss.n_samples"):
        load_ablation("mc_samples").cells("reference", "smoke", SEEDS, {"loss.n_samples": 3})
    with pytest.raises(ValueError, match=r"has nothing to compare: '-1' is not possible: `0 < training.lr < inf`"):
        Ablation("a", "?", "x", "1", values("training.lr", 1, -1)).cells("paper", "smoke", SEEDS)
    own = Ablation("a", "?", "x", "1", {"1": Variant(), "512": Variant({"loss.n_samples": 512})})
    with pytest.raises(ValueError, match=r"has nothing to compare: '512' is the baseline's own"):
        own.cells("paper", "paper", SEEDS)
    with pytest.raises(ValueError, match=r"Unknown ablation 'mc_sample'; there are ambiguity, .* 'mc_samples'"):
        load_ablation("mc_sample")
    file = tmp_path / "mine.py"
    file.write_text("ABLATION = 3\n")
    with pytest.raises(ValueError, match="of the type Ablation, but `ABLATION` is of the type int"):
        load_ablation(str(file))
    file.write_text("import nothing_of_that_name\n")
    with pytest.raises(ValueError, match="cannot be read: line 1: ModuleNotFoundError"):
        load_ablation(str(file))


SMALL = {"task.smoothing": "none", "task.largest_cosine": 0.9, "task.dim": 4, "task.dim_x": 3, "encoder.dim": 4}


def _run(**settings: object) -> Run:
    values = {path.replace("__", "."): value for path, value in settings.items()}
    return Run(RunConfig.of({**SMALL, **values}, profile="reference", scale="smoke"), (4, 5))


def test_variants_see_the_same_random_numbers() -> None:
    """Truth, evaluation and first weights by seed; the first batch too, and later ones while as much is drawn."""
    base, faster, more = _run(), _run(training__lr=0.01), _run(loss__n_samples=7)
    for other in (faster, more):
        for name, tensor in base.step.task.state_dict().items():
            assert torch.equal(tensor, other.step.task.state_dict()[name]), name
        for name, tensor in base.step.encoder.state_dict().items():
            assert torch.equal(tensor, other.step.encoder.state_dict()[name]), name
    inputs = {}
    for name, run in {"base": base, "faster": faster, "more": more}.items():
        first = run.step.prepare()
        run.step.mean_losses(first)
        inputs[name] = (first[0], run.step.prepare()[0])
    assert torch.equal(inputs["base"][0], inputs["more"][0])
    assert torch.equal(inputs["base"][1], inputs["faster"][1])
    assert not torch.equal(inputs["base"][1], inputs["more"][1])  # as the module's words say


def test_differences_are_paired() -> None:
    """Against SciPy's paired t-test, whose confidence interval is the same."""
    metric = "eval/kappa_rank_corr"
    base = {4: 0.51, 5: 0.72, 6: 0.33, 7: 0.64}
    other = {5: 0.79, 4: 0.60, 6: 0.37, 8: 0.99}
    reached = [
        Reached("a", {seed: {metric: value} for seed, value in base.items()}),
        Reached("b", {seed: {metric: value} for seed, value in other.items()}),
        Reached("c", {}, "seed 4: runaway kappa"),
    ]
    found = {entry.reached.label: entry for entry in compared(reached, "a", [metric, "eval/mu_mae"])}
    assert all(entry.metric == metric for entry in found.values())
    difference = found["b"].difference
    assert difference is not None
    test = stats.ttest_rel([other[s] for s in (4, 5, 6)], [base[s] for s in (4, 5, 6)])
    interval = test.confidence_interval(0.95)
    assert difference.n == 3
    assert math.isclose(difference.low, interval.low)
    assert math.isclose(difference.high, interval.high)
    assert found["b"].verdict == ("better" if interval.low > 0 else "unclear")
    rows = list(csv.DictReader(io.StringIO(as_csv(list(found.values()), "smoke"))))
    assert [row["variant"] for row in rows] == ["a", "b", "c"]
    assert float(rows[1]["difference"]) == pytest.approx(difference.mean)
    assert rows[2]["cause"] == "seed 4: runaway kappa"
    told = "\n".join(as_text(list(found.values()), "smoke"))
    assert "runaway kappa [smoke]" in told
    assert all("[smoke]" in line for line in told.splitlines()[3:])


def test_variants_that_no_seed_tells_apart_are_the_same() -> None:
    metric = "eval/kappa_rank_corr"
    by_seed = {4: {metric: 0.51}, 5: {metric: 0.72}}
    found = compared([Reached("a", by_seed), Reached("b", by_seed)], "a", [metric])
    assert [row["verdict"] for row in csv.DictReader(io.StringIO(as_csv(found, "paper")))] == ["baseline", "same"]
    assert as_text(found, "paper")[-1].endswith(" same")


def test_a_table_of_many_intervals_says_what_chance_does() -> None:
    metric = "eval/kappa_rank_corr"
    many = [Reached(str(i), {4: {metric: i / 7}, 5: {metric: i / 5}}) for i in range(7)]
    told = as_text(compared(many, "0", [metric]), "paper")
    assert told[-1] == "6 intervals of 95%: about 0.3 would miss zero by chance alone, were there no differences."
    assert not any("chance" in line for line in as_text(compared(many[:6], "0", [metric]), "paper"))
