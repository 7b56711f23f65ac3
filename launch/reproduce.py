"""The paper's tables and figures, ours beside the published: `python launch/reproduce.py --table bench_results`.

It trains what MLflow does not have yet, reads the rest, and prints published | ours | difference in combined standard
errors | verdict. The same goes to STORAGE/reproduce/ as text, Markdown, CSV, LaTeX and HTML, with the figures drawn.
Stopped at any time, the same command goes on.
"""

import argparse
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING

from launch.shared.command import Parser, run, say, settings
from launch.shared.job_submission import is_sent
from launch.shared.listed_study import check_settings, chosen_images, refuse_image_flags, run_given
from launch.shared.resume_command import REPRODUCE, command_to_resume, goes_on, how_to_go_on
from launch.shared.study_flags import (
    check_cluster,
    checked_tracker,
    joined,
    machine,
    resources_of,
    running_flags,
    what_flags,
    where_flags,
)

if TYPE_CHECKING:
    from launch.reproduction.cells import Cells, Setting
    from launch.reproduction.grids import GridStudy
    from pcl.studies.space.trial import Trial
    from pcl.studies.tracking.tracker import Tracker


def main() -> None:
    """Parse the command line, then list, plan or run."""
    arguments = _parser().parse_args()
    if arguments.list:
        _list()
        return
    if not is_sent(arguments, "reproduce"):
        _run(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="reproduce.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_argument_group("what to reproduce")
    what.add_argument("--table", action="append", default=[], metavar="NAME", help="a table; may be repeated")
    what.add_argument("--figure", action="append", default=[], metavar="NAME", help="a figure; may be repeated")
    what.add_argument("--all", action="store_true", help="every table and figure")
    what.add_argument("--list", action="store_true", help="print their names and stop")
    what.add_argument("--output", type=Path, metavar="DIR", help="also write each table there as a CSV that is to be "
                      "kept, with command, hardware, commit and date, such as dashboards/results")  # fmt: skip
    what_flags(what, "report seeds (default: 4,5,6,7,8; the first three at quick, two at smoke)")
    how = parser.add_argument_group("how to run it")
    how.add_argument("--plan", action="store_true", help="print what would run and about how long, and stop")
    running_flags(how)
    where_flags(parser)
    return parser


def _list() -> None:
    from pcl.studies.paper.published import published_titles  # noqa: PLC0415

    for name, title in published_titles().items():
        kind, _, short = name.partition(":")
        say(f"{'--table' if kind == 'tab' else '--figure':<9}{short:<20}{title}")


def _run(arguments: argparse.Namespace) -> None:
    started = time.perf_counter()
    from launch.reproduction.cells import Cells, chosen_tables, left_of, recorded  # noqa: PLC0415
    from launch.reproduction.grids import asked_grids  # noqa: PLC0415
    from launch.reproduction.results import check_kept, check_output, origins_of, rendering, write_results  # noqa: PLC0415
    from launch.reproduction.sheets import needed_tables, write_sheets  # noqa: PLC0415
    from pcl.studies.paper.published import published_titles  # noqa: PLC0415
    from pcl.studies.tracking.tracker import StoreError  # noqa: PLC0415

    names = chosen_tables(arguments, list(published_titles()))
    check_output(arguments.output)
    setting = _setting(arguments, names)
    check_kept(arguments, names, setting)
    tables = needed_tables(names)
    cells, grids = Cells.of(tables, setting), asked_grids(names, setting, arguments.storage)
    tracker = checked_tracker(arguments)
    try:
        found = recorded(tracker, cells.trials.values())
    except StoreError as error:
        raise ValueError(f"The tracking store {tracker.shown_uri} cannot be used: {error}") from None
    left = left_of(cells, {} if arguments.rerun else found)
    grids_left = [grid for grid in grids if grid.is_left or (arguments.rerun and grid.spec)]
    _say_plan(names, setting, len(cells.trials), left, grids_left)
    if arguments.plan:
        if arguments.address is None:
            first = [trial for grid in grids_left for trial in grid.first_trials()]
            known = {} if arguments.rerun else recorded(tracker, first)
            fresh = [trial for trial in first if trial.key not in known or known[trial.key].missing]
            _say_estimate(arguments, setting, list({trial.key: trial for trial in [*left, *fresh]}.values()))
            if grids_left:
                say("  what grids train after their first stage is not in it")
        return
    cause = ""
    if left or grids_left:
        setting = replace(setting, images=setting.images.with_weights())
        cells, grids = Cells.of(tables, setting), asked_grids(names, setting, arguments.storage)
        cause = _train(arguments, setting, cells, tracker, grids)
        with goes_on(REPRODUCE, command_to_resume(None, arguments, REPRODUCE)):
            found = recorded(tracker, cells.trials.values())
    folder, sheets = write_sheets(names, cells, found, grids, setting, arguments.storage)
    arguments.storage.mirror.inside("reproduce").push_all()
    say(f"\nwritten: {folder / 'index.html'}, and each table as .txt .md .csv .tex .html beside it")
    if arguments.output:
        kept = write_results(arguments, sheets, setting, origins_of(cells, found, grids, tracker))
        say(f"to be kept: {len(kept)} CSVs in {arguments.output}{rendering(arguments.output) if kept else ''}")
    say(f"{time.perf_counter() - started:.0f} s in all")
    if cause == "stopped":
        raise KeyboardInterrupt("stopped; the same command goes on")
    if cause:
        print(f"reproduce.py: {cause}; the same command goes on.", file=sys.stderr)
        sys.exit(1)


def _setting(arguments: argparse.Namespace, names: list[str]) -> "Setting":
    """How everything is reproduced; `--scale` is then what was chosen."""
    from launch.reproduction.cells import Setting  # noqa: PLC0415
    from launch.reproduction.sheets import needs_images  # noqa: PLC0415
    from pcl.studies.ledger.study_spec import read_seeds  # noqa: PLC0415
    from pcl.studies.space.ablation import seeds_at  # noqa: PLC0415

    arguments.storage.check()
    arguments.storage.pull_heads()
    scale = arguments.scale or ("paper" if machine(arguments.address).get("GPU") else "quick")
    arguments.scale, profile = scale, arguments.fidelity or "reference"
    setting = Setting(profile, scale, read_seeds(arguments.seeds or "") or seeds_at(scale), {**settings(arguments.set)})
    check_settings(setting.overrides)
    has_images = needs_images(names) and profile != "exact"
    if not needs_images(names):
        refuse_image_flags(arguments, "tables of images", "none of these is one")
    return replace(setting, images=chosen_images(arguments, scale)) if has_images else setting


def _say_plan(
    names: list[str], setting: "Setting", n_cells: int, left: "list[Trial]", grids: "list[GridStudy]"
) -> None:
    seeds = " ".join(map(str, setting.seeds))
    say(f"{len(names)} tables and figures, fidelity {setting.profile}, scale {setting.scale}, seeds {seeds}, "
        f"images {setting.images.data if setting.images.values else 'none'}")  # fmt: skip
    n_partly = sum(trial.seeds != setting.seeds for trial in left)
    partly = f" ({n_partly} of them on the seeds that are missing)" if n_partly else ""
    say(f"  {n_cells} cells, each once however many tables have it; {len(left)} are to be trained{partly}, MLflow has "
        "the rest")  # fmt: skip
    if grids:
        told = ", ".join(f"{grid.heading} ({' + '.join(map(str, grid.space.n_trials))})" for grid in grids)
        say(f"  grids to be searched on tuning seeds, with their trials: {told}")
    if setting.images.missing:
        say(f"  pretraining comes first: {setting.images.missing}")


def _say_estimate(arguments: argparse.Namespace, setting: "Setting", trials: "list[Trial]") -> None:
    """By a probe of cells of a middling size: one batch of the widest takes minutes without a GPU."""
    from launch.reproduction.cells import studies_of  # noqa: PLC0415
    from pcl.presentation.durations import duration  # noqa: PLC0415
    from pcl.studies.report.plan import costs_of, estimated_seconds  # noqa: PLC0415
    from pcl.studies.space.workload import work_of  # noqa: PLC0415

    if trials:
        say("  timing a few batches, which takes a minute or two where the published size meets no GPU ...")
    resources = resources_of(arguments, machine())
    device = "cuda" if machine()["GPU"] and resources.gpus else "cpu"
    for study in studies_of(trials, setting, arguments.storage):
        work = [work_of(trial, device == "cuda") for trial in study.trials]
        middle = median_low(work)
        probed = [trial for trial, of_trial in zip(study.trials, work, strict=True) if of_trial == middle]
        if costs := costs_of(probed, device, max(1, int(resources.cpus))):
            times_longer = sum(work) / len(work) / middle
            seconds = estimated_seconds(costs, len(work), resources.slots(machine()), times_longer)
            say(f"  estimated: {duration(seconds)} for {len(work)} {study.title} (probe of {len(costs)}, others by the "
                "size of their networks)")  # fmt: skip


def _train(
    arguments: argparse.Namespace, setting: "Setting", cells: "Cells", tracker: "Tracker", grids: "list[GridStudy]"
) -> str:
    """Train what MLflow does not have; returns why that ended early, if it did."""
    from launch.reproduction.cells import left_of, recorded, studies_of  # noqa: PLC0415
    from launch.reproduction.grids import search  # noqa: PLC0415
    from pcl.studies.execution.interrupt import Interrupt  # noqa: PLC0415

    check_cluster(arguments)
    interrupt = Interrupt(60 * (arguments.time_budget or 0))
    found = {} if arguments.rerun else recorded(tracker, cells.trials.values())
    left = {trial.key: trial for trial in left_of(cells, found)}
    if not arguments.rerun:  # a grid finds its first stage in MLflow: two studies start faster than ten
        left |= {trial.key: trial for grid in grids if grid.is_left for trial in grid.first_trials()}
    with joined(arguments, interrupt, lambda: how_to_go_on(None, arguments, REPRODUCE)) as dashboard:
        say(f"Ray dashboard: {dashboard or 'none'}")
        where = (
            f"--tracking-uri {tracker.shown_uri}"
            if arguments.storage.is_store
            else f"--storage {shlex.quote(str(arguments.storage))}"
        )
        say(f"the studies, as they go: python launch/ui.py {where}")
        for study in studies_of(list(left.values()), setting, arguments.storage):
            if not interrupt.is_set():
                run_given(study, arguments, tracker, interrupt, REPRODUCE, lambda _: [])
        for grid in grids:
            if (grid.is_left or (arguments.rerun and grid.spec)) and not interrupt.is_set():
                search(grid, arguments, tracker, interrupt)
    return interrupt.cause


if __name__ == "__main__":
    run(main)
