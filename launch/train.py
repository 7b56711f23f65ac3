"""One training without Ray: `python launch/train.py --profile reference --seed 4 --set loss.n_samples=16`.

It writes checkpoints at evaluations. Run again, it goes on from there; a finished one is shown, not repeated.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from launch.shared.backbone_weights import HELP, chosen_weights
from launch.shared.command import SKIP_BAD_HELP, Parser, chosen_device, run, say, settings
from launch.shared.image_choice import chosen_data, named, skipping
from launch.shared.progress_line import Progress
from pcl.metrics.undefined import as_json, mean_of, told, told_with_error

if TYPE_CHECKING:
    from pcl.config.run_config import RunConfig
    from pcl.training.run import Report, Run

SHOWN = {
    "train/loss": "loss", "eval/mu_mae": "mu MAE", "eval/mu_rank_corr": "mu rank", "eval/kappa_mae": "kappa MAE",
    "eval/kappa_rank_corr": "kappa rank", "eval/kappa_mean": "mean kappa",
    "val/crop_rank_corr": "crop", "val/entropy_rank_corr": "entropy", "val/recall_at_1": "Recall@1",
    "test/crop_rank_corr": "test crop", "test/entropy_rank_corr": "test entropy",
    "test/recall_at_1": "test Recall@1",
}  # fmt: skip


def main() -> None:
    """Parse the command line, train and report."""
    arguments = _parser().parse_args()
    config = _config(arguments)
    if arguments.show_config:
        say(json.dumps(config.flat(), indent=2))
        return
    from pcl.mathematics.random_streams import check_seeds  # noqa: PLC0415  -h answers at once

    seeds = tuple(arguments.seed or [4])
    check_seeds(seeds)
    name = f"{config.task_name}-{config.loss_name}-{config.profile.value}-{config.scale.value}-{config.fingerprint()}"
    checkpoint = arguments.checkpoint or Path("runs") / "train" / f"{name}-seed{'-'.join(map(str, seeds))}.pt"
    if checkpoint.is_dir():
        raise ValueError(f"`--checkpoint` must name a file, but {checkpoint} is a folder.")
    if arguments.calibrate:
        _calibrate(config, seeds[0])
        return
    training = _start(config, seeds, checkpoint, arguments)
    _train(training, checkpoint)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="train.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, help="a whole configuration, such as a study's best.yaml")
    parser.add_argument("--task", help="toy (default) or images")
    parser.add_argument("--data", help="images: auto (default), cifar10h, embedded, or a folder of class folders")
    parser.add_argument("--skip-bad", action="store_true", help=SKIP_BAD_HELP)
    parser.add_argument("--weights", metavar="auto|none|FILE", help=HELP)
    parser.add_argument("--loss", help="mc_info_nce (default), hib, elk or info_nce")
    parser.add_argument("--profile", help="fidelity: paper, reference or exact (default: reference)")
    parser.add_argument("--scale", help="smoke, quick or paper (default: paper)")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="a setting; may be repeated")
    parser.add_argument("--seed", type=int, action="append", help="repeated, they train side by side (default: 4)")
    parser.add_argument("--device", default=None, help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--plain", action="store_true", help="without CUDA graphs and fused kernels")
    parser.add_argument("--checkpoint", type=Path, default=None, help="file (default: runs/train/...pt)")
    parser.add_argument("--fresh", action="store_true", help="start over even if there is a checkpoint")
    parser.add_argument("--calibrate", action="store_true", help="say where the loss's optimum in kappa lies, and stop")
    parser.add_argument("--show-config", action="store_true", help="print every setting and stop")
    return parser


def _config(arguments: argparse.Namespace) -> "RunConfig":
    """From a file or from the flags, with the values of `--set` on top."""
    from pcl.config.run_config import RunConfig  # noqa: PLC0415  -h answers at once

    values = settings(arguments.set)
    if arguments.config is None:
        profile, scale = arguments.profile or "reference", arguments.scale or "paper"
        task = arguments.task or "toy"
        for name in ("data", "weights", "skip_bad"):
            if getattr(arguments, name) not in (None, False) and task != "images":
                raise ValueError(f"`--{name.replace('_', '-')}` is for `--task images`.")
        weights = values.pop("encoder.weights", arguments.weights) if task == "images" else None
        config = RunConfig.of(values, loss=arguments.loss or "mc_info_nce", profile=profile, scale=scale, task=task)
        if task != "images" or arguments.show_config:
            return config
        return _with_images(config, "task.data" in values, weights, arguments)
    said = ("loss", "profile", "scale", "task", "data", "skip_bad", "weights")
    if any(getattr(arguments, name) for name in said):
        raise ValueError("`--config` is a whole configuration: leave out what it says already.")
    try:
        content = yaml.safe_load(arguments.config.read_text())
    except (yaml.YAMLError, UnicodeDecodeError):
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{arguments.config} must be a YAML file of `path: value` lines, as best.yaml is.")
    return RunConfig.from_flat(content).with_values(values)


def _with_images(
    config: "RunConfig", is_given: bool, weights: str | None, arguments: argparse.Namespace
) -> "RunConfig":
    """The configuration with its images and pretrained weights named; trains the weights where there are none yet."""
    from pcl.encoders import ResNetEncoder  # noqa: PLC0415
    from pcl.tasks import CifarTask  # noqa: PLC0415

    assert isinstance(config.task, CifarTask.Config)
    assert isinstance(config.encoder, ResNetEncoder.Config)
    asked = skipping(config.task.data if is_given else arguments.data, arguments.skip_bad)
    data = chosen_data(asked)
    config.task.check(data)
    chosen = chosen_weights(weights, data, config.encoder.width, config.scale.value)
    name = chosen if isinstance(chosen, str) else chosen.train(chosen_device(arguments.device))
    return config.with_values({"task.data": named(asked, data), "encoder.weights": name})


def _start(config: "RunConfig", seeds: tuple[int, ...], checkpoint: Path, arguments: argparse.Namespace) -> "Run":
    """A training, new or from its checkpoint."""
    from pcl.training.checkpoint import check_same_config, read_checkpoint  # noqa: PLC0415
    from pcl.training.run import Run  # noqa: PLC0415

    device = chosen_device(arguments.device)
    if checkpoint.exists() and not arguments.fresh:
        content = read_checkpoint(checkpoint)
        check_same_config(checkpoint, content, config, seeds)
        training = Run.resumed(content, device, is_fast=not arguments.plain)
        say(f"going on from {checkpoint} at batch {training.batch:,}")
        return training
    say(
        f"{config.loss_name}, profile {config.profile.value}, scale {config.scale.value}, seeds {list(seeds)}, {device}"
    )
    started = time.perf_counter()
    training = Run(config, seeds, device, is_fast=not arguments.plain)
    say(f"set up in {time.perf_counter() - started:.1f} s; checkpoints go to {checkpoint}")
    if device == "cpu" and config.scale.value == "paper":
        say("the published length is for a GPU: on a CPU it may take days, where `--scale quick` takes half a minute")
    return training


def _train(training: "Run", checkpoint: Path) -> None:
    from pcl.training.checkpoint import Saving  # noqa: PLC0415  -h answers at once

    report: Report | None = None
    saved = training.batch

    def stopped() -> str:
        where = f"goes on from batch {saved:,}" if saved else "starts over: nothing was saved yet"
        return f"the same command {where}"

    with Progress(lambda: training.batch, training.config.training.n_batches, stopped) as progress:
        saving = Saving(training, checkpoint)
        for report in training:
            if saving.save():
                saved = report.batch
            _write_report(checkpoint, training, report)
            progress.shown = _shown(report.metrics)
            progress.tell()
    if report is None:
        say(f"already finished; {results_of(checkpoint)} has the results")
        return
    for seed, metrics in report.by_seed.items():
        say(f"seed {seed}: {report.failures.get(seed, _shown(metrics))}")
    if len(report.by_seed) - len(report.failures) > 1:
        say(_summary([metrics for seed, metrics in report.by_seed.items() if seed not in report.failures]))
    say(f"trained in {report.seconds:.1f} s; {results_of(checkpoint)} has the results")


def _shown(metrics: dict[str, float]) -> str:
    return "  ".join(f"{label} {told(metrics[key], '.4g')}" for key, label in SHOWN.items() if key in metrics)


def _summary(by_seed: list[dict[str, float]]) -> str:
    """Mean and standard error of every shown metric; undefined where a seed's is, which then says of how many."""
    from pcl.studies.results.selection import standard_error  # noqa: PLC0415  -h answers at once

    parts = []
    for key, label in SHOWN.items():
        values = [metrics[key] for metrics in by_seed if key in metrics]
        if values:
            parts.append(f"{label} {told_with_error(mean_of(values), standard_error(values), '.4g', '.2g')}")
            n_undefined = sum(map(math.isnan, values))
            parts[-1] += f" (in {n_undefined} of {len(values)} seeds)" if n_undefined else ""
    return f"mean ± standard error of {len(by_seed)} seeds: " + "  ".join(parts)


def _calibrate(config: "RunConfig", seed: int) -> None:
    from pcl.config.schedule import Trained  # noqa: PLC0415
    from pcl.distributions import CosineLaw  # noqa: PLC0415
    from pcl.tasks.calibration import calibration_scan  # noqa: PLC0415
    from pcl.tasks.toy import ToyTask  # noqa: PLC0415

    if not isinstance(config.task, ToyTask.Config):
        raise ValueError("A calibration scan needs a known truth: take the task 'toy'.")
    task = config.task.build([seed])
    phases = [i for i, phase in enumerate(config.training.phases) if phase.trained is not Trained.MU]
    if not phases:
        raise ValueError("A calibration scan is about kappa, which no phase of `training.phases` trains.")
    source = config.training.negatives_at(phases[-1])
    law = CosineLaw(config.encoder.sampler, config.encoder.sampler_gradient)
    loss = config.loss_with(source).build()
    n_anchors = 512 if source.are_common else 2048  # each with many negatives, or with few
    scan = calibration_scan(task, loss, source, config.training.n_negatives, n_anchors=n_anchors, law=law)
    say("c (kappa-hat = c kappa):  " + "  ".join(f"{factor:.3g}" for factor in scan.factors))
    say("mean loss:                " + "  ".join(f"{loss:.4f}" for loss in scan.losses))
    say(scan.warning or f"optimum at c = {scan.best:.3g}")


def _write_report(checkpoint: Path, training: "Run", report: "Report") -> None:
    from pcl.storage.files import replacing  # noqa: PLC0415  -h answers at once

    content: dict[str, Any] = {
        "config": training.config.flat(),
        "batch": report.batch,
        "seconds": report.seconds,
        "device": str(training.device),
        "by_seed": {
            seed: {key: as_json(value) for key, value in metrics.items()} for seed, metrics in report.by_seed.items()
        },
        "failures": {seed: str(failure) for seed, failure in report.failures.items()},
    }
    with replacing(results_of(checkpoint)) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")


def results_of(checkpoint: Path) -> Path:
    """The file of results beside a checkpoint."""
    return checkpoint.with_name(f"{checkpoint.name}.json")


if __name__ == "__main__":
    run(main)
