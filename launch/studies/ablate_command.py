"""Body of `launch/ablate.py`: plan or run the requested ablation."""

import time

from launch.shared.command import say
from launch.shared.common_flags import print_json, rows_of
from launch.shared.image_choice import chosen_features
from launch.studies.asked_study import Asked, resumed
from launch.studies.images import NO_IMAGES, Images, chosen_images
from launch.studies.requests import StudyRequest
from launch.studies.resume_command import ABLATE, Resumption
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.resources import Demand
from pcl.studies.ledger.study_spec import ABLATION
from pcl.studies.report.paired_table import NUMBERS
from pcl.studies.report.plan import estimate, told_resources
from pcl.studies.session.ablation_study import TABLE, ablation_study, cells_of
from pcl.studies.session.new_study import Runs, ablation_spec, folder_of
from pcl.studies.session.request import RunRequest
from pcl.studies.session.site import check_site, costs_here, default_scale, joined, machine
from pcl.studies.session.study_session import StudySession
from pcl.studies.session.tracking_choice import checked_tracker, require_free_name
from pcl.studies.space.ablation import OWN, Ablation, load_ablation
from pcl.studies.space.declarations import recorded_name
from pcl.studies.space.trial import Trial


def run_ablation(request: StudyRequest) -> None:
    """Run an ablation, or print its plan."""
    started, asked, run = time.perf_counter(), asked_ablation(request), request.run
    tracker = checked_tracker(run)
    if request.study.is_plan:
        _say_plan(request, asked)
        return
    require_free_name(tracker, asked.folder)
    check_site(run)
    asked = asked.with_weights()
    _say_plan(request, asked)
    study = ablation_study(asked.folder, asked.declared, asked.spec, say)
    resumption, interrupt = Resumption(ABLATE, run), Interrupt(run.time_budget_s)
    session = StudySession(study, run, tracker, interrupt, resumption.client(tracker))
    with joined(run, interrupt, say, lambda: resumption.how_to_go_on(asked.folder)) as site:
        baseline, *others = session.conduct(site).outcomes
    say(f"{time.perf_counter() - started:.0f} s in all")
    if request.is_json:
        differences = rows_of((asked.folder.path / TABLE).read_text(), NUMBERS)
        print_json({"study": asked.folder.name, "differences": differences})
    is_compared = baseline.is_finished and any(outcome.is_finished for outcome in others)
    lacks = "" if is_compared else "the baseline or all other variants failed; the table says why"
    resumption.leave(interrupt.stop, f"`{resumption.command_line(asked.folder)}`", lacks)


def asked_ablation(request: StudyRequest) -> Asked[Ablation]:
    """Return the requested study, new or to be resumed; creates nothing."""
    storage, config = request.run.storage, request.config
    storage.check()
    if request.study.resume is not None:
        return resumed(storage, request.study.resume, ABLATION, load_ablation)
    if request.declared is None:
        raise ValueError("`--ablation NAME`, `--resume` or `--list` must be given.")
    ablation, images = load_ablation(request.declared), NO_IMAGES
    scale = config.scale or default_scale(request.run.address)
    if ablation.experiment.has_features:
        config.images.refuse("ablations of images", f"{ablation.name!r} is of features", takes_data=True)
        images = Images(*chosen_features(config.settings.get("task.data", config.images.data)))
    elif ablation.experiment.has_images:
        images = chosen_images(config, scale, ablation.task, ablation.encoder, ablation.base)
    else:
        config.images.refuse("ablations of images", f"{ablation.name!r} has none")
    runs = Runs(config.profile, scale, {**config.settings, **images.values}, config.seeds, images.data)
    spec = ablation_spec(ablation, recorded_name(request.declared), runs)
    cells_of(ablation, spec)  # raises an error if there is nothing to compare
    return Asked(ablation, spec, folder_of(storage, request.study.name, ablation, spec), images)


def _say_plan(request: StudyRequest, asked: Asked[Ablation]) -> None:
    ablation, spec, cells = asked.declared, asked.spec, cells_of(asked.declared, asked.spec)
    seeds = " ".join(map(str, spec.report_seeds))
    say(f"study {asked.folder.name}: {ablation.question}")
    say(f"  fidelity {spec.profile}, scale {spec.scale}, data {spec.data}, seeds {seeds}")
    say(f"  {len(cells.trials)} variants of {ablation.axis}: {', '.join(cells.trials)}; the first is the baseline")
    own = [label for label, why in cells.left_out.items() if why == OWN]
    for label, why in cells.left_out.items():
        if label not in own:
            say(f"  left out: {label}, which is not possible here: {why}")
    if own:
        say(f"  left out: {len(own)} that are the baseline's own")
    if asked.images.missing:
        say(f"  pretraining comes first: {asked.images.missing}")
    elif request.study.is_plan and request.run.address is None:
        _say_estimate(request.run, list(cells.trials.values()))


def _say_estimate(request: RunRequest, trials: list[Trial]) -> None:
    demand = Demand(len(trials))
    say("  probing a few batches of the first and the last variant ...")
    if costs := costs_here(trials, request.resources_of(machine()), request.is_measured(machine(), demand)):
        resources = request.resources_of(machine(), costs, demand)
        say(told_resources(resources, machine()))
        say(estimate(costs, len(trials), len(trials), resources, resources.slots(machine())))
