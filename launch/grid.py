"""Search a space on Ray and record every trial in MLflow: `python launch/grid.py --space toy_mcinfonce`.

It says what will run and how long it will take, shows how it goes, and ends with a ranked table, the winner in
runs/STUDY/best.yaml, and all trials in MLflow. Killed or stopped at any time, `--resume` goes on where it was.
"""

import argparse
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from launch.command import run, say, settings, whole_number

if TYPE_CHECKING:
    from pcl.studies.ledger import StudyFolder
    from pcl.studies.plan import Cost
    from pcl.studies.recorder import Recorder
    from pcl.studies.runner import Interrupt, Resources
    from pcl.studies.searching import Finding
    from pcl.studies.space import SearchSpace
    from pcl.studies.study import StudySpec
    from pcl.studies.tracking import StudyTags, Tracker


def main() -> None:
    """Parse the command line, then list, plan or run."""
    arguments = _parser().parse_args()
    if arguments.json:
        sys.stdout = sys.stderr  # what is said goes there; the table's JSON is written to the real one
    if arguments.list:
        _list()
        return
    _run(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="grid.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_argument_group("what to search")
    what.add_argument("--space", metavar="NAME|FILE", help="a space of search_spaces/, or a file that defines SPACE")
    what.add_argument("--list", action="store_true", help="print the spaces and stop")
    what.add_argument("--scale", choices=["smoke", "quick", "paper"], help="default: paper with a GPU, else quick")
    what.add_argument("--fidelity", choices=["paper", "reference", "exact"], help="profile (default: reference)")
    what.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="a setting; may be repeated")
    what.add_argument("--seeds", metavar="1,2,3", help="tuning seeds (default: the space's; its first at quick, smoke)")
    how = parser.add_argument_group("how to run it")
    how.add_argument("--plan", action="store_true", help="print what would run and what it takes, and stop")
    how.add_argument("--name", help="of the study (default: space, scale and time)")
    how.add_argument("--resume", nargs="?", const="", metavar="STUDY", help="go on with a study (default: the latest)")
    how.add_argument("--rerun", action="store_true", help="run again also what is known")
    how.add_argument("--fail-fast", action="store_true", help="stop at the first failed trial")
    how.add_argument("--finalize", action=argparse.BooleanOptionalAction, help="run the best on the report seeds "
                     "(default: at scale paper)")  # fmt: skip
    how.add_argument("--time-budget", type=float, metavar="MINUTES", help="stop cleanly after so long")
    how.add_argument("--json", action="store_true", help="print the result as JSON on stdout, all else on stderr")
    where = parser.add_argument_group("where")
    where.add_argument("--storage", type=Path, default=Path("runs"), help="folder of studies (default: runs)")
    where.add_argument("--tracking-uri", help="MLflow (default: MLFLOW_TRACKING_URI, else STORAGE/mlflow.db)")
    where.add_argument("--address", help="of a Ray cluster (default: start one here)")
    where.add_argument("--cpus-per-trial", type=float, default=1.0, help="default: 1")
    where.add_argument("--gpus-per-trial", type=float, help="may be a fraction (default: 1 if there are any)")
    where.add_argument("--max-concurrent", type=whole_number, help="trials at once (default: as many as fit)")
    return parser


def _list() -> None:
    from pcl.studies.space import load_space, space_names  # noqa: PLC0415

    for name in space_names():
        space = load_space(name)
        say(f"{name:<26}{' + '.join(map(str, space.n_trials)):>8} trials  {space.loss} by {space.objective.metric}")


def _run(arguments: argparse.Namespace) -> None:
    started = time.perf_counter()
    space, spec, folder = _study(arguments)
    if arguments.plan:
        resources = _resources(arguments, _machine())
        _show_plan(arguments, space, spec, folder, _machine(), _costs(space, spec, resources))
        return
    from pcl.studies.tracking import Tracker, tracking_uri  # noqa: PLC0415

    tracker = Tracker(tracking_uri(arguments.tracking_uri, arguments.storage.absolute()))
    tracker.check()
    from pcl.studies.runner import Interrupt, available_resources, ray_cluster  # noqa: PLC0415
    from pcl.studies.study import opened  # noqa: PLC0415

    if arguments.address is None:
        _resources(arguments, _machine()).require(_machine())  # before Ray starts, which takes a while
    interrupt = Interrupt(60 * (arguments.time_budget or 0))
    probes = ThreadPoolExecutor(1)
    costs = probes.submit(_costs, space, spec, _resources(arguments, _machine()))  # while Ray starts
    with interrupt.on_ctrl_c(say), ray_cluster(arguments.address) as dashboard, opened(folder, spec):
        available = available_resources()
        _resources(arguments, available).require(available)
        _show_plan(arguments, space, spec, folder, available, costs.result())
        parent = tracker.open_study(folder.name, _tags(space, spec))
        _say_addresses(dashboard, tracker)
        finding = _search(arguments, space, spec, folder, tracker, available, interrupt, parent)
    say(f"{time.perf_counter() - started:.0f} s in all")
    if arguments.json:
        from pcl.studies.outputs import summary  # noqa: PLC0415

        print(json.dumps(summary(space, spec, finding), indent=1), file=sys.__stdout__, flush=True)
    _leave(finding, interrupt.cause, f"python launch/grid.py --resume {folder.name}{_storage_flag(arguments)}")


def _study(arguments: argparse.Namespace) -> tuple["SearchSpace", "StudySpec", "StudyFolder"]:
    """What is asked for: a new study or one to go on with. Makes nothing."""
    from pcl.studies.ledger import StudyFolder  # noqa: PLC0415
    from pcl.studies.space import load_space  # noqa: PLC0415
    from pcl.studies.study import StudySpec, check_writable, latest_study  # noqa: PLC0415

    check_writable(arguments.storage)
    if arguments.resume is not None:
        fixed = ("space", "scale", "fidelity", "set", "seeds", "name")
        if given := [f"--{name}" for name in fixed if getattr(arguments, name)]:
            raise ValueError(f"A study that is resumed has its settings already: leave out {', '.join(given)}.")
        folder = StudyFolder(arguments.storage / (arguments.resume or latest_study(arguments.storage)))
        spec = StudySpec.read(folder)
        space = load_space(spec.space)
        if space.fingerprint() != spec.fingerprint:
            raise ValueError(
                f"The space {spec.space} has changed since the study {folder.name!r} began; start a new study (what "
                f"it shares with the old one is not run again), or restore the space."
            )
        return space, spec, folder
    if arguments.space is None:
        raise ValueError("`--space NAME`, `--resume` or `--list` must be given.")
    space = load_space(arguments.space)
    scale = arguments.scale or ("paper" if _machine()["GPU"] else "quick")
    where = arguments.space if arguments.space.endswith(".py") else space.name
    spec = StudySpec(
        str(Path(where).absolute()) if where.endswith(".py") else where,
        space.fingerprint(),
        arguments.fidelity or "reference",
        scale,
        dict(settings(arguments.set)),
        _seeds(arguments.seeds) or (space.tuning_seeds if scale == "paper" else space.tuning_seeds[:1]),
        space.report_seeds,
    )
    for trial in spec.trials(space, 0, {}):  # every cell is possible, or is refused here
        if trial.run_config.task_name != "toy":
            raise ValueError(f"The space {space.name!r} is of images, which this version cannot train yet.")
    name = arguments.name or f"{space.name}-{scale}-{time.strftime('%Y%m%d-%H%M%S')}"
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name.startswith("."):
        raise ValueError(f"`--name` must be letters, digits, '-', '_' and '.', but got {name!r}.")
    return space, spec, StudyFolder(arguments.storage / name)


def _seeds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        seeds = tuple(int(word) for word in text.replace(",", " ").split())
    except ValueError:
        seeds = ()
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0:
        raise ValueError(f"`--seeds` takes different whole numbers such as 1,2,3, but got {text!r}.")
    return seeds


def _machine() -> dict[str, float]:
    """What a cluster that is started here will have."""
    import torch  # noqa: PLC0415

    return {"CPU": float(os.cpu_count() or 1), "GPU": float(torch.cuda.device_count())}


def _resources(arguments: argparse.Namespace, available: dict[str, float]) -> "Resources":
    from pcl.studies.runner import Resources  # noqa: PLC0415

    gpus = arguments.gpus_per_trial
    if gpus is None:
        gpus = 1.0 if available.get("GPU") else 0.0
    if arguments.cpus_per_trial < 0 or gpus < 0 or (gpus > 1 and gpus != int(gpus)):
        raise ValueError(f"`--cpus-per-trial {arguments.cpus_per_trial:g} --gpus-per-trial {gpus:g}` is not possible.")
    return Resources(arguments.cpus_per_trial, gpus, arguments.max_concurrent or 0)


def _is_finalized(arguments: argparse.Namespace, spec: "StudySpec") -> bool:
    return bool(arguments.finalize) if arguments.finalize is not None else spec.scale == "paper"


def _costs(space: "SearchSpace", spec: "StudySpec", resources: "Resources") -> list["Cost"]:
    """Of a grid's corners, the first and the last: the cheapest and the dearest, or near it."""
    from pcl.studies.plan import probe  # noqa: PLC0415

    trials = spec.trials(space, 0, {})
    device = "cuda" if resources.gpus and _machine()["GPU"] else "cpu"
    return [probe(trial.run_config, trial.seeds, device) for trial in (trials[0], trials[-1])]


def _show_plan(
    arguments: argparse.Namespace, space: "SearchSpace", spec: "StudySpec", folder: "StudyFolder",
    available: dict[str, float], costs: list["Cost"],
) -> None:  # fmt: skip
    from pcl.studies.plan import Plan  # noqa: PLC0415

    plan = Plan(space, spec, folder, _resources(arguments, available), available, _is_finalized(arguments, spec))
    for line in plan.lines(costs):
        say(line)


def _tags(space: "SearchSpace", spec: "StudySpec") -> "StudyTags":
    from pcl.studies.provenance import commit, lock_hash  # noqa: PLC0415
    from pcl.studies.tracking import StudyTags  # noqa: PLC0415
    from pcl.studies.trainable import hardware_name  # noqa: PLC0415

    hardware = hardware_name("cuda" if _machine()["GPU"] else "cpu")
    return StudyTags(
        space.name, spec.scale, spec.profile, space.objective.metric, spec.data, commit(), lock_hash(), hardware
    )  # fmt: skip


def _say_addresses(dashboard: str, tracker: "Tracker") -> None:
    if dashboard:
        say(f"Ray dashboard: {dashboard} (if it asks for a token: `ray get-auth-token`)")
    uri = tracker.shown_uri
    if uri.startswith("http"):
        say(f"MLflow UI: {uri.rstrip('/')}/{tracker.trials_page}")
    else:
        say(f"MLflow UI: {Path(sys.executable).parent / 'mlflow'} ui --backend-store-uri {uri}")
        say(f"           then http://127.0.0.1:5000/{tracker.trials_page}")


def _search(
    arguments: argparse.Namespace, space: "SearchSpace", spec: "StudySpec", folder: "StudyFolder",
    tracker: "Tracker", available: dict[str, float], interrupt: "Interrupt", parent: str,
) -> "Finding":  # fmt: skip
    """Run the study, print and write what it found, and bring MLflow in line."""
    from pcl.studies.recorder import Recorder  # noqa: PLC0415
    from pcl.studies.searching import Choices, Search  # noqa: PLC0415

    choices = Choices(
        _resources(arguments, available), _is_finalized(arguments, spec), arguments.rerun, arguments.fail_fast
    )
    recorder = Recorder(tracker)
    finding = Search(space, spec, folder, tracker, recorder, choices, interrupt, say).run()
    from pcl.studies.ledger import label  # noqa: PLC0415
    from pcl.studies.outputs import figures, table, write_all  # noqa: PLC0415

    for name, outcomes in {**finding.stages, "report seeds": finding.report}.items():
        if outcomes:
            say(f"\n{name}")
            for line in table(outcomes, space):
                say(line)
    files = write_all(folder, space, spec, finding)
    if finding.best is not None:
        say(f"\nwinner: {finding.best.trial.label}")
        if space.published:
            say(f"published winner: {label(space.published)}")
        files += figures(folder, finding.best)
        checkpoint = folder.trial(finding.best.trial.key).checkpoint
        files += [checkpoint] if checkpoint.exists() else []
    say("written: " + ", ".join(str(file) for file in files))
    for file in files:
        recorder.submit_artifact(parent, file)
    _close(recorder, tracker, finding, interrupt.cause, folder, space.objective.metric)
    return finding


def _close(
    recorder: "Recorder", tracker: "Tracker", finding: "Finding", cause: str, folder: "StudyFolder", metric: str
) -> None:
    """Wait for the records and end the study in MLflow, or say what is missing there."""
    from pcl.studies.tracking import End, StoreError  # noqa: PLC0415

    missing = recorder.close(timeout_s=60)
    if not missing:
        try:
            if finding.best is not None:
                tracker.summarize({"best/objective": finding.best.mean(metric)})
            end = End.KILLED if cause else End.FINISHED if finding.best is not None else End.FAILED
            tracker.close_study(end)
        except StoreError as error:
            missing = [str(error)]
    if missing:
        say(
            f"MLflow lacks {len(missing)} records (such as {missing[0]}); they are kept in {folder.path}: "
            f"`python launch/grid.py --resume {folder.name}` sends them."
        )


def _leave(finding: "Finding", cause: str, command: str) -> None:
    """Exit with 0 only if there is a winner."""
    if cause == "stopped":
        raise KeyboardInterrupt(f"stopped; `{command}` goes on")
    if cause or finding.best is None:
        reason = cause or "no trial of a stage finished, so there is no winner"
        print(f"grid.py: {reason}; `{command}` goes on.", file=sys.stderr)
        sys.exit(1)


def _storage_flag(arguments: argparse.Namespace) -> str:
    return f" --storage {arguments.storage}" if arguments.storage != Path("runs") else ""


if __name__ == "__main__":
    run(main)
