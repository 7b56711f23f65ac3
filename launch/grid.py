"""Search a space on Ray and record every trial in MLflow: `python launch/grid.py --space toy_mcinfonce`.

It says what will run and how long it will take, shows how it goes, and ends with a ranked table, the winner in
runs/STUDY/best.yaml, and all trials in MLflow. Killed or stopped at any time, `--resume` goes on where it was.
"""

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from launch.shared.command import Parser, run, say, whole_number
from launch.shared.grid_request import asked_study
from launch.shared.job_submission import is_sent
from launch.shared.resume_command import command_to_resume, how_to_go_on, leave, resumable
from launch.shared.study_flags import (
    check_cluster,
    checked_tracker,
    how_flags,
    joined,
    machine,
    provenance,
    resources_of,
    say_addresses,
    study_name,
    what_flags,
    where_flags,
)

if TYPE_CHECKING:
    from pcl.studies.execution.interrupt import Interrupt
    from pcl.studies.execution.resources import Cost, Resources
    from pcl.studies.ledger.folders import StudyFolder
    from pcl.studies.ledger.study_spec import StudySpec
    from pcl.studies.search.stages import Finding
    from pcl.studies.space.search_space import SearchSpace
    from pcl.studies.tracking.tracker import StudyTags, Tracker


def main() -> None:
    """Parse the command line, then list, plan or run."""
    arguments = _parser().parse_args()
    if arguments.json:
        sys.stdout = sys.stderr  # what is said goes there; the table's JSON is written to the real one
    if arguments.list:
        _list()
        return
    if not is_sent(arguments, "grid"):
        _run(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="grid.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_argument_group("what to search")
    what.add_argument("--space", metavar="NAME|FILE", help="a space of search_spaces/, or a file that defines SPACE")
    what.add_argument("--list", action="store_true", help="print the spaces and stop")
    what_flags(what, "tuning seeds (default: the space's; its first at quick, smoke)")
    search = parser.add_argument_group("how to search")
    search.add_argument("--search", choices=["grid", "random", "optuna"], help="default: grid, all of its cells")
    search.add_argument("--trials", type=whole_number, metavar="N", help="of each stage of a random or Optuna search "
                        "(default: a tenth of the grid, from 10 to 100; the plan says)")  # fmt: skip
    search.add_argument("--search-seed", type=int, metavar="SEED", help="of the draws and the sampler (default: 0)")
    search.add_argument("--sampler", choices=["tpe", "gp"], help="Optuna's: tree-structured Parzen estimator (default) "
                        "or Gaussian process")  # fmt: skip
    search.add_argument(
        "--warm-start", type=study_name, metavar="STUDY", help="Optuna begins with this study's finished trials"
    )
    search.add_argument("--scheduler", choices=["none", "asha", "pbt"], help="asha: stop trials early that fall behind "
                        "(default: none; pbt is refused and says why)")  # fmt: skip
    search.add_argument("--replicate", choices=["auto"], help="more seeds for the best of each stage until it is "
                        "clear which is best (the plan has the rule)")  # fmt: skip
    search.add_argument("--objectives", metavar="METRIC,METRIC", help="metrics of a Pareto front; the first decides "
                        "(default: the space's)")  # fmt: skip
    how = how_flags(parser, "space, images, scale and time")
    how.add_argument("--finalize", action=argparse.BooleanOptionalAction, help="run the best on the report seeds "
                     "(default: at scale paper)")  # fmt: skip
    how.add_argument("--json", action="store_true", help="print the result as JSON on stdout, all else on stderr")
    where_flags(parser)
    return parser


def _list() -> None:
    from pcl.studies.space.search_space import load_space, space_names  # noqa: PLC0415

    for name in space_names():
        space = load_space(name)
        say(f"{name:<26}{' + '.join(map(str, space.n_trials)):>8} trials  {space.loss} by {space.objective.metric}")


def _run(arguments: argparse.Namespace) -> None:
    started = time.perf_counter()
    asked = asked_study(arguments)
    space, spec, folder, missing = asked
    if arguments.plan:
        folder.pull()
        if missing:
            say(f"pretraining would come first: {missing}")
        costs = _costs(arguments, space, spec) if arguments.address is None else []
        available = machine(arguments.address)
        _show_plan(arguments, space, spec, folder, available, resources_of(arguments, available, costs), costs)
        return
    tracker = checked_tracker(arguments)
    from pcl.studies.cluster.session import available_resources  # noqa: PLC0415
    from pcl.studies.execution.interrupt import Interrupt  # noqa: PLC0415
    from pcl.studies.ledger.study_spec import opened  # noqa: PLC0415
    from pcl.studies.report.plan import survive_forks  # noqa: PLC0415

    check_cluster(arguments)
    spec = asked.with_weights("cuda" if machine()["GPU"] else "cpu").spec
    interrupt = Interrupt(60 * (arguments.time_budget or 0))
    survive_forks()
    # While Ray starts
    probe = ThreadPoolExecutor(1).submit(_costs, arguments, space, spec) if arguments.address is None else None
    with (
        joined(arguments, interrupt, lambda: how_to_go_on(folder, arguments)) as dashboard,
        opened(folder, spec, interrupt.set), resumable(folder, arguments),
    ):  # fmt: skip
        available = available_resources()
        resources_of(arguments, available).require(available)
        costs = probe.result() if probe else _costs_there(arguments, space, spec, available)
        resources = resources_of(arguments, available, costs)
        _show_plan(arguments, space, spec, folder, available, resources, costs)
        parent = tracker.open_study(folder.name, _tags(space, spec))
        say_addresses(dashboard, tracker)
        finding = _search(arguments, space, spec, folder, tracker, resources, interrupt, parent)
    say(f"{time.perf_counter() - started:.0f} s in all")
    if arguments.json:
        from pcl.studies.report.outputs import summary  # noqa: PLC0415
        from pcl.studies.results.pareto import with_objectives  # noqa: PLC0415

        decided, _ = with_objectives(space, spec.objectives)
        print(json.dumps(summary(decided, spec, finding), indent=1), file=sys.__stdout__, flush=True)
    leave(finding, interrupt.cause, command_to_resume(folder, arguments))


def _is_finalized(arguments: argparse.Namespace, spec: "StudySpec") -> bool:
    return bool(arguments.finalize) if arguments.finalize is not None else spec.scale == "paper"


def _costs(arguments: argparse.Namespace, space: "SearchSpace", spec: "StudySpec") -> list["Cost"]:
    from pcl.studies.report.plan import costs_of  # noqa: PLC0415

    resources = resources_of(arguments, machine())
    is_gpu = machine()["GPU"] and resources.gpus
    n_threads, is_shared = max(1, int(resources.cpus)), arguments.gpus_per_trial == "auto"
    return costs_of(spec.corners(space), "cuda" if is_gpu else "cpu", n_threads, is_shared)


def _costs_there(
    arguments: argparse.Namespace, space: "SearchSpace", spec: "StudySpec", available: dict[str, float]
) -> list["Cost"]:
    """Measured on a node as a trial would be; none where the cluster is busy."""
    from pcl.studies.cluster.joining import on_a_node  # noqa: PLC0415
    from pcl.studies.report.plan import costs_of  # noqa: PLC0415

    resources = resources_of(arguments, available)
    how = "cuda" if resources.gpus else "cpu", max(1, int(resources.cpus)), arguments.gpus_per_trial == "auto"
    return on_a_node(resources.cpus, resources.gpus, costs_of, spec.corners(space), *how) or []


def _show_plan(
    arguments: argparse.Namespace, space: "SearchSpace", spec: "StudySpec", folder: "StudyFolder",
    available: dict[str, float], resources: "Resources", costs: list["Cost"],
) -> None:  # fmt: skip
    from pcl.studies.report.plan import Plan  # noqa: PLC0415

    plan = Plan(space, spec, folder, resources, available, _is_finalized(arguments, spec))
    for line in plan.lines(costs):
        say(line)


def _tags(space: "SearchSpace", spec: "StudySpec") -> "StudyTags":
    from pcl.studies.results.pareto import with_objectives  # noqa: PLC0415
    from pcl.studies.tracking.tracker import StudyTags  # noqa: PLC0415

    decided, _ = with_objectives(space, spec.objectives)
    return StudyTags(space.name, spec.scale, spec.profile, decided.objective.metric, spec.data, *provenance())


def _search(
    arguments: argparse.Namespace, space: "SearchSpace", spec: "StudySpec", folder: "StudyFolder",
    tracker: "Tracker", resources: "Resources", interrupt: "Interrupt", parent: str,
) -> "Finding":  # fmt: skip
    """Run the study, print and write what it found, and bring MLflow in line."""
    from pcl.studies.execution.ray_runner import RayRunner  # noqa: PLC0415
    from pcl.studies.search.stages import Choices, Search, close  # noqa: PLC0415
    from pcl.studies.tracking.recorder import Recorder  # noqa: PLC0415

    choices = Choices(RayRunner(resources), _is_finalized(arguments, spec), arguments.rerun, arguments.fail_fast)
    recorder = Recorder(tracker)
    search = Search(space, spec, folder, tracker, recorder, choices, interrupt, say)
    space = search.space  # by the first objective
    finding = search.run()
    from pcl.studies.ledger.lease import keep_outputs  # noqa: PLC0415
    from pcl.studies.report.outputs import figures, front_table, replication_table, table, write_all  # noqa: PLC0415
    from pcl.studies.space.labels import label  # noqa: PLC0415

    for name, outcomes in {**finding.stages, "report seeds": finding.report}.items():
        if outcomes:
            say(f"\n{name}")
            for line in table(outcomes, space):
                say(line)
    for name, replication in finding.replications.items():
        for line in ["", *replication_table(name, replication, space)]:
            say(line)
    if finding.front:
        say("\n" + "\n".join(["Pareto front", *front_table(finding)]))
    files = write_all(folder, space, spec, finding)
    if finding.best is not None:
        by = f" (by {space.objective.metric}, the first objective)" if finding.front else ""
        say(f"\nwinner: {finding.best.trial.label}{by}")
        if space.published:
            say(f"published winner: {label(space.published)}")
        winner = folder.trial(finding.best.trial.key)
        drawn = figures(folder, finding.best, say)
        for file in drawn:
            recorder.submit_artifact(winner, file)
        files += drawn
        checkpoint = winner.checkpoint
        files += [checkpoint] if checkpoint.exists() else []
    say("written: " + ", ".join(str(file) for file in files))
    keep_outputs(folder, interrupt.cause, say)
    for file in files:
        recorder.submit_artifact(parent, file)
    if missing := close(finding, tracker, recorder, space.objective.metric, bool(interrupt.cause)):
        say(
            f"MLflow lacks {len(missing)} records (such as {missing[0]}); they are kept in {folder.path}: "
            f"`{command_to_resume(folder, arguments)}` sends them."
        )
    return finding


if __name__ == "__main__":
    run(main)
