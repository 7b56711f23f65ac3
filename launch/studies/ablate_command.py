"""The body of `launch/ablate.py`: plan or run the ablation that was asked for."""

import time

from launch.shared.command import say
from launch.studies.ablation_study import Asked, asked_ablation
from launch.studies.console import client_of
from launch.studies.requests import AblationRequest
from launch.studies.resume_command import ABLATE, Resumption
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.report.plan import estimate
from pcl.studies.session.request import RunRequest
from pcl.studies.session.site import check_site, costs_here, joined, machine
from pcl.studies.session.study_session import StudySession
from pcl.studies.session.tracking_choice import checked_tracker
from pcl.studies.space.ablation import OWN


def run_ablation(request: AblationRequest) -> None:
    """Run an ablation, or say what that would take."""
    started, asked, run = time.perf_counter(), asked_ablation(request), request.run
    tracker = checked_tracker(run)
    if request.study.is_plan:
        _say_plan(request, asked)
        return
    check_site(run)
    asked = asked.with_weights()
    _say_plan(request, asked)
    resumption, interrupt = Resumption(ABLATE, run), Interrupt(run.time_budget_s)
    session = StudySession(asked.study(), run, tracker, interrupt, client_of(resumption, tracker))
    with joined(run, interrupt, say, lambda: resumption.how_to_go_on(asked.folder)) as site:
        baseline, *others = session.conduct(site).outcomes
    say(f"{time.perf_counter() - started:.0f} s in all")
    is_compared = baseline.is_finished and any(outcome.is_finished for outcome in others)
    lacks = "" if is_compared else "the baseline or all else failed; the table says why"
    resumption.leave(interrupt.stop, f"`{resumption.command_line(asked.folder)}`", lacks)


def _say_plan(request: AblationRequest, asked: Asked) -> None:
    ablation, spec, cells = asked.ablation, asked.spec, asked.cells()
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
        _say_estimate(request.run, asked)


def _say_estimate(request: RunRequest, asked: Asked) -> None:
    resources, trials = request.resources_of(machine()), list(asked.cells().trials.values())
    if costs := costs_here(trials, resources):
        say(estimate(costs, len(trials), len(trials), resources, resources.slots(machine())))
