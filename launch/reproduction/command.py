"""Body of `launch/reproduce.py`: train what MLflow lacks, then print and write the paper's results and ours."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median_low

from dashboards.paper.formats import FORMATS
from dashboards.paper.results import KeptRows
from launch.reproduction.cells import Cells, Setting, left_of, recorded, studies_of
from launch.reproduction.grids import GridStudy, asked_grids
from launch.reproduction.results import check_kept, check_output, kept_rows, origins_of, rendering, write_results
from launch.reproduction.sheets import needed_tables, needs_images, write_sheets
from launch.reproduction.table_choice import check_rows, chosen_tables
from launch.shared.command import say
from launch.shared.common_flags import print_json, rows_of
from launch.studies.images import check_settings, chosen_images
from launch.studies.requests import ReproductionRequest
from launch.studies.resume_command import Resumption, resumed_reproduction
from pcl.storage.installation import command
from pcl.studies.execution.interrupt import Interrupt, Stop
from pcl.studies.paper.published import published_titles
from pcl.studies.report.plan import told_range
from pcl.studies.session.request import Runner, RunRequest
from pcl.studies.session.site import check_site, costs_here, default_scale, joined, machine
from pcl.studies.session.study_session import Client, StudySession
from pcl.studies.session.tracking_choice import checked_tracker
from pcl.studies.space.ablation import seeds_at
from pcl.studies.space.trial import Trial
from pcl.studies.space.workload import work_of
from pcl.studies.tracking.tracker import StoreError, Tracker


def run_reproduction(request: ReproductionRequest) -> None:
    """Reproduce tables and figures, or print the plan."""
    started, run = time.perf_counter(), request.run
    names = chosen_tables(request, list(published_titles()))
    check_output(request.output)
    request, setting = _setting(request, names)
    check_kept(request, names, setting)
    tables = needed_tables(names)
    cells, grids = Cells.of(tables, setting), asked_grids(names, setting, run.storage)
    check_rows(request.rows, [*(row.name for table in tables for row in table.rows), *(grid.heading for grid in grids)])
    tracker = checked_tracker(run)
    try:
        found = recorded(tracker, cells.trials.values())
    except StoreError as error:
        raise ValueError(f"The tracking store {tracker.shown_uri} cannot be used: {error}") from None
    kept = kept_rows(request, names, setting, cells, found)
    asked = cells.only(request.rows)
    left = left_of(asked, {} if run.is_rerun else found, kept)
    grids_left = _left(grids, request)
    n_recorded = sum(key in found and not found[key].missing for key in asked.trials) * (not run.is_rerun)
    _say_plan(names, setting, len(asked.trials), left, grids_left, n_recorded)
    if request.is_plan:
        if run.address is None:
            _say_estimates(run, setting, tracker, left, grids_left)
        return
    resumption, stop = resumed_reproduction(request), None
    if left or grids_left:
        if _have_images(left, grids_left):
            setting = replace(setting, images=setting.images.with_weights())
        cells, grids = Cells.of(tables, setting), asked_grids(names, setting, run.storage)
        stop = _train(resumption, setting, cells.only(request.rows), tracker, _left(grids, request), kept)
        with resumption.mended(resumption.command_line()):
            found = recorded(tracker, cells.trials.values())
        kept = kept_rows(request, names, setting, cells, found)  # fewer, if other rows needed their trials
    folder, sheets = write_sheets(names, cells, found, grids, setting, run.storage, kept)
    run.storage.mirror.inside("reproduce").push_all()
    say(f"\nwritten: {folder / 'index.html'}, and each table as .txt .md .csv .tex .html next to it")
    if request.output:
        files = write_results(request, sheets, setting, origins_of(cells, found, grids, tracker), kept)
        say(f"kept: {len(files)} CSVs in {request.output}{rendering(request.output) if files else ''}")
    say(f"{time.perf_counter() - started:.0f} s in all")
    if request.is_json:
        print_json({sheet.name: rows_of(FORMATS["csv"](sheet)) for sheet in sheets})
    resumption.leave(stop, "the same command")


def _setting(request: ReproductionRequest, names: list[str]) -> tuple[ReproductionRequest, Setting]:
    """Return the setting of the reproduction, and the request with the chosen scale."""
    storage, config = request.run.storage, request.config
    storage.check()
    storage.pull_heads()
    scale = config.scale or default_scale(request.run.address)
    seeds = config.seeds or seeds_at(scale)
    setting = Setting(config.profile, scale, seeds, {**config.settings})
    check_settings(setting.overrides)
    if not needs_images(names):
        config.images.refuse("tables of images", "none of these is one")
    else:
        setting = replace(setting, images=chosen_images(config, scale))
    return replace(request, config=replace(config, scale=scale)), setting


def _left(grids: Sequence[GridStudy], request: ReproductionRequest) -> list[GridStudy]:
    """Return the requested grids that have something to search."""
    asked = [grid for grid in grids if not request.rows or grid.heading in request.rows]
    return [grid for grid in asked if grid.is_left(request.run.is_rerun)]


def _have_images(trials: Sequence[Trial], grids: Sequence[GridStudy]) -> bool:
    """Return whether any of the trials or grids needs a backbone."""
    tasks = {trial.config["task_name"] for trial in trials} | {grid.space.task for grid in grids}
    return "images" in tasks


def _say_plan(
    names: list[str], setting: Setting, n_cells: int, left: list[Trial], grids: list[GridStudy], n_recorded: int
) -> None:
    seeds = " ".join(map(str, setting.seeds))
    say(f"{len(names)} tables and figures, fidelity {setting.profile}, scale {setting.scale}, seeds {seeds}, "
        f"images {setting.images.data if setting.images.values else 'none'}")  # fmt: skip
    n_partly = sum(trial.seeds != setting.seeds for trial in left)
    partly = f" ({n_partly} of them on the seeds that are missing)" if n_partly else ""
    n_kept = n_cells - len(left) - n_recorded
    kept = f", {n_kept} in the folder of results" if n_kept else ""
    say(f"  {n_cells} cells, each once however many tables have it: {len(left)} to be trained{partly}, {n_recorded} in "
        f"MLflow{kept}")  # fmt: skip
    if grids:
        told = ", ".join(f"{grid.heading} ({' + '.join(map(str, grid.space.n_trials))})" for grid in grids)
        say(f"  grids to be searched on tuning seeds, with their trials: {told}")
    if setting.images.missing and _have_images(left, grids):
        say(f"  pretraining comes first: {setting.images.missing}")


def _say_estimates(
    run: RunRequest, setting: Setting, tracker: Tracker, left: list[Trial], grids: list[GridStudy]
) -> None:
    """Print how long it takes to train what MLflow lacks, including the first stages of grids.

    A few cells of median size are timed: a batch of the widest takes minutes on a CPU.
    """
    first = [trial for grid in grids for trial in grid.first_trials()]
    known = {} if run.is_rerun else recorded(tracker, first)
    fresh = [trial for trial in first if trial.key not in known or known[trial.key].missing]
    trials = list({trial.key: trial for trial in [*left, *fresh]}.values())
    if trials:
        say("  timing a few batches, which takes a minute or two at the published size without a GPU ...")
    resources = run.resources_of(machine())
    is_gpu = bool(machine()["GPU"] and resources.gpus)
    for study in studies_of(trials, setting, run.storage):
        cells = study.strategy
        work = [work_of(trial, is_gpu) for trial in cells.trials]
        middle = median_low(work)
        probed = [trial for trial, of_trial in zip(cells.trials, work, strict=True) if of_trial == middle]
        if costs := costs_here(probed, resources):
            times_longer = sum(work) / len(work) / middle
            seconds = told_range(costs, len(work), resources, resources.slots(machine()), times_longer)
            say(f"  estimated: {seconds} for {len(work)} {cells.title} (probe of {len(costs)}, others by the "
                "size of their networks)")  # fmt: skip
    if grids:
        say("  later stages of the grids are not included")


def _train(
    resumption: Resumption, setting: Setting, cells: Cells, tracker: Tracker, grids: list[GridStudy], kept: KeptRows
) -> Stop | None:
    """Train what MLflow lacks; returns why that ended early, if it did."""
    run = resumption.run
    check_site(run)
    interrupt = Interrupt(run.time_budget_s)
    found = {} if run.is_rerun else recorded(tracker, cells.trials.values())
    left = {trial.key: trial for trial in left_of(cells, found, kept)}
    if not run.is_rerun:  # a grid reuses its first stage from MLflow: two studies start faster than ten
        left |= {trial.key: trial for grid in grids for trial in grid.first_trials()}
    client = Client(say, resumption.command_line, resumption.guard)
    with joined(run, interrupt, say, resumption.how_to_go_on) as site:
        if run.runner is Runner.RAY:
            say(f"Ray dashboard: {site.dashboard or 'none'}")
        where = ("--tracking-uri", tracker.shown_uri) if run.storage.is_store else ("--storage", str(run.storage))
        say(f"the studies, as they go: {command('board')} {shlex.join(where)}")
        for study in studies_of(list(left.values()), setting, run.storage):
            if not interrupt.is_set():
                StudySession(study, run, tracker, interrupt, client).conduct(site)
        for grid in grids:
            if not interrupt.is_set():
                say(f"\n{grid.table}, {grid.heading}: study {grid.folder.name}")
                StudySession(grid.study(), run, tracker, interrupt, client).conduct(site)
    return interrupt.stop
