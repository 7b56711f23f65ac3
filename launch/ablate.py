"""Vary one thing and see what it does: `python launch/ablate.py --ablation mc_samples`.

Every variant has the same seeds, and with them the same generators, folds, evaluation sets and first weights, so that
differences from the baseline are taken seed by seed. It ends with a table of them, in runs/STUDY/ and in MLflow, where
the board shows it. What any study has run already is not run again. Killed or stopped, `--resume` goes on.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from launch.shared.backbone_weights import check_weights
from launch.shared.command import Parser, run, say, settings
from launch.shared.image_choice import chosen_data
from launch.shared.job_submission import is_sent
from launch.shared.listed_study import NO_IMAGES, WEIGHTS, Given, Images, chosen_images, refuse_image_flags, run_given
from launch.shared.resume_command import ABLATE, command_to_resume, how_to_go_on
from launch.shared.study_flags import (
    check_cluster,
    checked_tracker,
    default_name,
    how_flags,
    joined,
    machine,
    provenance,
    refuse_with_resume,
    resources_of,
    say_addresses,
    what_flags,
    where_flags,
)

if TYPE_CHECKING:
    from pcl.studies.ledger.folders import StudyFolder
    from pcl.studies.ledger.study_spec import StudySpec
    from pcl.studies.results.selection import Outcome
    from pcl.studies.space.ablation import Ablation, Cells


class Asked(NamedTuple):
    """An ablation that is about to run.

    Attributes:
        ablation: What is asked.
        spec: What the study is.
        folder: Where it is kept.
        images: Which images; a backbone may have to be trained first.
    """

    ablation: "Ablation"
    spec: "StudySpec"
    folder: "StudyFolder"
    images: Images

    def cells(self) -> "Cells":
        """Its trials."""
        spec = self.spec
        return self.ablation.cells(spec.profile, spec.scale, spec.report_seeds, spec.overrides, spec.data)


def main() -> None:
    """Parse the command line, then list, plan or run."""
    arguments = _parser().parse_args()
    if arguments.list:
        _list()
        return
    if not is_sent(arguments, "ablate"):
        _run(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="ablate.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_argument_group("what to vary")
    what.add_argument(
        "--ablation", metavar="NAME|FILE", help="one of search_spaces/ablations/, or a file with ABLATION"
    )
    what.add_argument("--list", action="store_true", help="print the ablations and stop")
    what_flags(what, "of every variant (default: 4,5,6,7,8; the first three at quick, two at smoke)")
    how_flags(parser, "ablation, images, scale and time")
    where_flags(parser)
    return parser


def _list() -> None:
    from pcl.studies.space.ablation import ablation_names, load_ablation  # noqa: PLC0415

    for name in ablation_names():
        ablation = load_ablation(name)
        say(f"{name:<18}{len(ablation.variants):>3} variants of {ablation.axis:<16}{ablation.question}")


def asked_ablation(arguments: argparse.Namespace) -> Asked:
    """What is asked for: a new study or one to go on with. Makes nothing."""
    from pcl.studies.ledger.study_spec import ABLATION, StudySpec, read_seeds  # noqa: PLC0415
    from pcl.studies.space.ablation import load_ablation, seeds_at  # noqa: PLC0415

    arguments.storage.check()
    if arguments.resume is not None:
        return _resumed(arguments)
    if arguments.ablation is None:
        raise ValueError("`--ablation NAME`, `--resume` or `--list` must be given.")
    ablation = load_ablation(arguments.ablation)
    scale = arguments.scale or ("paper" if machine(arguments.address).get("GPU") else "quick")
    images = NO_IMAGES
    if ablation.experiment.has_images:
        images = chosen_images(arguments, scale)
    else:
        refuse_image_flags(arguments, "ablations of images", f"{ablation.name!r} has none")
    is_file = arguments.ablation.endswith(".py") or "/" in arguments.ablation
    spec = StudySpec(
        str(Path(arguments.ablation).absolute()) if is_file else ablation.name, ablation.fingerprint(),
        arguments.fidelity or "reference", scale, {**settings(arguments.set), **images.values}, (),
        read_seeds(arguments.seeds or "") or seeds_at(scale), images.data, kind=ABLATION,
    )  # fmt: skip
    name = arguments.name or default_name(ablation.name, images.data, scale)
    asked = Asked(ablation, spec, arguments.storage.study(name), images)
    asked.cells()  # possible, or a sentence that says why not
    return asked


def _resumed(arguments: argparse.Namespace) -> Asked:
    from pcl.studies.ledger.study_spec import ABLATION, StudySpec, latest_study, require_kind, space_of  # noqa: PLC0415
    from pcl.studies.space.ablation import load_ablation  # noqa: PLC0415

    fixed = ("ablation", "scale", "fidelity", "set", "seeds", "name", "data", "skip_bad", "weights")
    refuse_with_resume(arguments, fixed)
    folder = arguments.storage.study(arguments.resume or latest_study(arguments.storage, ABLATION))
    spec = StudySpec.read(folder)
    require_kind(folder, spec, ABLATION)
    ablation = load_ablation(space_of(folder, spec))
    if ablation.fingerprint() != spec.fingerprint:
        raise ValueError(f"The ablation {spec.space} has changed since {folder.name!r} began; start a new study.")
    if ablation.experiment.has_images:
        if not spec.data.endswith(chosen_data(str(spec.overrides["task.data"])).fingerprint):
            raise ValueError(f"The images {spec.overrides['task.data']} have changed since {folder.name!r} began.")
        check_weights(str(spec.overrides.get(WEIGHTS, "")))
    return Asked(ablation, spec, folder, Images({}, spec.data, None))


def _run(arguments: argparse.Namespace) -> None:
    started = time.perf_counter()
    asked = asked_ablation(arguments)
    tracker = checked_tracker(arguments)
    if arguments.plan:
        _say_plan(arguments, asked)
        return
    from pcl.studies.execution.interrupt import Interrupt  # noqa: PLC0415
    from pcl.studies.tracking.tracker import StudyTags  # noqa: PLC0415

    check_cluster(arguments)
    asked = _with_weights(asked)
    ablation, spec, cells = asked.ablation, asked.spec, asked.cells()
    _say_plan(arguments, asked)
    baseline = cells.trials[ablation.baseline].key
    tags = StudyTags(
        f"ablations/{ablation.name}", spec.scale, spec.profile, ablation.objective.metric, spec.data, *provenance(),
        ablation.name, baseline,
    )  # fmt: skip
    study = Given(asked.folder, spec, tags, ablation.objective, list(cells.trials.values()), ablation.question)
    interrupt = Interrupt(60 * (arguments.time_budget or 0))
    with joined(arguments, interrupt, lambda: how_to_go_on(asked.folder, arguments, ABLATE)) as dashboard:
        outcomes = run_given(
            study, arguments, tracker, interrupt, ABLATE, lambda found: _written(asked, found),
            lambda: say_addresses(dashboard, tracker),
        )  # fmt: skip
    say(f"{time.perf_counter() - started:.0f} s in all")
    command = command_to_resume(asked.folder, arguments, ABLATE)
    if interrupt.cause == "stopped":
        raise KeyboardInterrupt(f"stopped; `{command}` goes on")
    is_compared = outcomes[0].is_finished and any(outcome.is_finished for outcome in outcomes[1:])
    if interrupt.cause or not is_compared:
        failed = "the baseline or all else failed; the table says why"
        lacks = f"{interrupt.cause}; `{command}` goes on" if interrupt.cause else failed
        print(f"ablate.py: {lacks}.", file=sys.stderr)
        sys.exit(1)


def _with_weights(asked: Asked) -> Asked:
    """The same with nothing missing."""
    images = asked.images.with_weights()
    overrides = {**asked.spec.overrides, **images.values}
    return asked._replace(spec=replace(asked.spec, overrides=overrides), images=images)


def _say_plan(arguments: argparse.Namespace, asked: Asked) -> None:
    ablation, spec, cells = asked.ablation, asked.spec, asked.cells()
    seeds = " ".join(map(str, spec.report_seeds))
    say(f"study {asked.folder.name}: {ablation.question}")
    say(f"  fidelity {spec.profile}, scale {spec.scale}, data {spec.data}, seeds {seeds}")
    say(f"  {len(cells.trials)} variants of {ablation.axis}: {', '.join(cells.trials)}; the first is the baseline")
    from pcl.studies.space.ablation import OWN  # noqa: PLC0415

    own = [label for label, why in cells.left_out.items() if why == OWN]
    for label, why in cells.left_out.items():
        if label not in own:
            say(f"  left out: {label}, which is not possible here: {why}")
    if own:
        say(f"  left out: {len(own)} that are the baseline's own")
    if asked.images.missing:
        say(f"  pretraining comes first: {asked.images.missing}")
    elif arguments.plan and arguments.address is None:
        _say_estimate(arguments, asked)


def _say_estimate(arguments: argparse.Namespace, asked: Asked) -> None:
    from pcl.studies.report.plan import costs_of, estimate  # noqa: PLC0415

    resources = resources_of(arguments, machine())
    trials = list(asked.cells().trials.values())
    is_gpu = machine()["GPU"] and resources.gpus
    costs = costs_of(trials, "cuda" if is_gpu else "cpu", max(1, int(resources.cpus)))
    if costs:
        say(estimate(costs, len(trials), len(trials), resources.slots(machine())))


def _written(asked: Asked, outcomes: "list[Outcome]") -> list[Path]:
    """Print the table and write it; returns the files."""
    from pcl.storage.files import write_text  # noqa: PLC0415
    from pcl.studies.report.outputs import trials_csv  # noqa: PLC0415
    from pcl.studies.report.paired_table import Reached, as_csv, as_text, compared  # noqa: PLC0415

    ablation, spec = asked.ablation, asked.spec
    by_label = {str(outcome.trial.varied[ablation.axis]): outcome for outcome in outcomes}
    reached = [
        Reached(label, {s: m for s, m in o.by_seed.items() if s not in o.failures and o.is_finished}, _cause(o))
        for label in ablation.variants
        if (o := by_label.get(label)) is not None
    ]
    found = compared(reached, ablation.baseline, ablation.shown_metrics)
    seeds = " ".join(map(str, spec.report_seeds))
    told = [
        f"{ablation.name}: {ablation.question}",
        f"fidelity {spec.profile}, scale {spec.scale}, data {spec.data}, seeds {seeds}; differences from "
        f"{ablation.axis} = {ablation.baseline}, seed by seed",
        *as_text(found, spec.scale),
    ]
    files = [asked.folder.path / name for name in ("ablation.txt", "ablation.csv", "trials.csv")]
    contents = ("\n".join(told) + "\n", as_csv(found, spec.scale), trials_csv(outcomes))
    for path, content in zip(files, contents, strict=True):
        write_text(path, content)
    for line in ["", *told, ""]:
        say(line)
    say("written: " + ", ".join(map(str, files)))
    return files


def _cause(outcome: "Outcome") -> str:
    return outcome.cause or ("" if outcome.result is not None else "not run")


if __name__ == "__main__":
    run(main)
