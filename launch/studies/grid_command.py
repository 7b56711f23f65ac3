"""Body of `launch/grid.py`: plan or run the requested search."""

import time

from launch.shared.command import say
from launch.shared.common_flags import print_json
from launch.studies.asked_study import Asked
from launch.studies.grid_study import asked_study
from launch.studies.requests import StudyRequest
from launch.studies.resume_command import GRID, Resumption
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.report.outputs import summary
from pcl.studies.session.request import Runner, RunRequest
from pcl.studies.session.site import check_site, joined
from pcl.studies.session.strategies import StageSearch
from pcl.studies.session.study_session import Study, StudySession, preview, search_study
from pcl.studies.session.tracking_choice import checked_tracker, require_free_name
from pcl.studies.space.search_space import SearchSpace


def run_grid(request: StudyRequest) -> None:
    """Search a space, or print the plan."""
    started, asked, run = time.perf_counter(), asked_study(request), request.run
    if request.study.is_plan:
        if asked.images.missing:
            say(f"pretraining would come first: {asked.images.missing}")
        preview(_study(asked, run), run, say)
        return
    tracker = checked_tracker(run)
    require_free_name(tracker, asked.folder)
    check_site(run)
    study = _study(asked.with_weights(), run)
    resumption, interrupt = Resumption(GRID, run), Interrupt(run.time_budget_s)
    session = StudySession(study, run, tracker, interrupt, resumption.client(tracker))
    if run.address is None and run.runner is Runner.RAY:
        session.measure()  # while Ray starts
    with joined(run, interrupt, say, lambda: resumption.how_to_go_on(study.folder)) as site:
        finding = session.conduct(site)
    say(f"{time.perf_counter() - started:.0f} s in all")
    if request.is_json:
        print_json(summary(study.strategy.decided, study.spec, finding))
    lacks = "no trial of a stage finished, so there is no winner; the table says why"
    going_on = f"`{resumption.command_line(study.folder)}`"
    resumption.leave(interrupt.stop, going_on, lacks if finding.best is None else "")


def _study(asked: Asked[SearchSpace], run: RunRequest) -> Study[StageSearch]:
    return search_study(asked.folder, StageSearch(asked.declared, asked.spec, run.is_finalized(asked.spec.scale)))
