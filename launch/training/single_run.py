"""One training without Ray: configure it, run it with a progress line, keep its checkpoint and results."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import yaml

from launch.shared.backbone_weights import chosen_weights
from launch.shared.command import chosen_device, require_writable, say, settings
from launch.shared.common_flags import print_json
from launch.shared.image_choice import chosen_data, chosen_features, named, skipping
from launch.shared.progress_line import Progress
from launch.training.requests import TrainRequest
from launch.training.run_results import results_of, shown, summary, write_results
from pcl.config.run_config import RunConfig
from pcl.config.schedule import Trained
from pcl.mathematics.random_streams import check_seeds
from pcl.tasks.calibration import calibration_scan
from pcl.training.checkpoint import Saving, check_same_config, read_checkpoint
from pcl.training.run import Report, Run


def train(request: TrainRequest) -> None:
    """Train the requested configuration, or show it, or calibrate its loss."""
    config = _config(request)
    if request.show_config:
        say(json.dumps(config.flat(), indent=2))
        return
    check_seeds(request.seeds)
    name = f"{config.label}-{config.fingerprint()}"
    checkpoint = request.checkpoint or Path("runs") / "train" / f"{name}-seed{'-'.join(map(str, request.seeds))}.pt"
    if checkpoint.is_dir():
        raise ValueError(f"`--checkpoint` must name a file, but {checkpoint} is a folder.")
    require_writable("--checkpoint", checkpoint.parent)
    if request.calibrate:
        _calibrate(config, request.seeds[0], has_tables=not request.is_plain)
        return
    _run(_start(config, checkpoint, request), checkpoint)
    if request.is_json:
        print_json(json.loads(results_of(checkpoint).read_text()))


def _config(request: TrainRequest) -> RunConfig:
    """Return the configuration from a file or from the flags, with the values of `--set` on top."""
    values = settings(request.overrides)
    if request.config is not None:
        return _from_file(request, request.config, values)
    profile, scale = request.fidelity or "reference", request.scale or _default_scale(request)
    loss, task, encoder = request.loss or "mc_info_nce", request.task or "toy", request.encoder or ""
    experiment = RunConfig.of(loss=loss, task=task, encoder=encoder).experiment
    has_images = experiment.has_images
    for flag, given in (("data", request.data), ("weights", request.weights), ("skip-bad", request.skip_bad or None)):
        if given is not None and not (has_images or (flag == "data" and experiment.has_features)):
            raise ValueError(f"`--{flag}` is for `--task images`.")
    if experiment.has_features and not request.show_config:
        named_data = chosen_features(values.get("task.data", request.data))[0]
        names = {"loss": loss, "profile": profile, "scale": scale, "task": task, "encoder": encoder}
        return RunConfig.of({**values, **named_data}, **names)
    weights = values.pop("encoder.weights", request.weights) if has_images else None
    config = RunConfig.of(values, loss=loss, profile=profile, scale=scale, task=task, encoder=encoder)
    if not has_images or request.show_config:
        return config
    return _with_images(config, "task.data" in values, weights, request)


def _default_scale(request: TrainRequest) -> str:
    """Return the default scale: `paper` on a GPU or for `--calibrate`, which trains nothing; else `quick`."""
    return "paper" if request.calibrate or chosen_device(request.device) == "cuda" else "quick"


def _from_file(request: TrainRequest, file: Path, values: Mapping[str, str]) -> RunConfig:
    names = ("loss", "encoder", "fidelity", "scale", "task", "data", "weights", "skip_bad")
    if given := [f"`--{name.replace('_', '-')}`" for name in names if getattr(request, name)]:
        raise ValueError(f"`--config` is a whole configuration: leave out {', '.join(given)}.")
    if file.is_dir() or not file.exists():
        raise ValueError(f"`--config` must name a file, but {file} is {'a folder' if file.is_dir() else 'not there'}.")
    try:
        content = yaml.safe_load(file.read_text())
    except (yaml.YAMLError, UnicodeDecodeError):
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{file} must be a YAML file of `path: value` lines, as best.yaml is.")
    return RunConfig.from_flat(content).with_values(values)


def _with_images(config: RunConfig, is_given: bool, weights: str | None, request: TrainRequest) -> RunConfig:
    """Return the configuration with its images and weights; trains the weights if there are none yet."""
    asked = skipping(str(config.flat()["task.data"]) if is_given else request.data, request.skip_bad)
    data = chosen_data(asked, config.task.inputs.shape[-1])
    config.task.check_images(data)
    width = config.encoder.pretrained_width
    if width is None:
        return config.with_values({"task.data": named(asked, data)})
    chosen = chosen_weights(weights, data, width, config.scale.value)
    name = chosen if isinstance(chosen, str) else chosen.train(chosen_device(request.device))
    return config.with_values({"task.data": named(asked, data), "encoder.weights": name})


def _start(config: RunConfig, checkpoint: Path, request: TrainRequest) -> Run:
    """Return a new training, or the checkpoint's."""
    device, seeds = chosen_device(request.device), request.seeds
    if checkpoint.exists() and not request.is_fresh:
        content = read_checkpoint(checkpoint)
        check_same_config(checkpoint, content, config, seeds)
        training = Run.resumed(content, device, is_fast=not request.is_plain)
        say(f"going on from {checkpoint} at batch {training.batch:,}")
        return training
    sizes = f"profile {config.profile.value}, scale {config.scale.value}"
    say(f"{config.loss_name}, {sizes}, seeds {list(seeds)}, {device}")
    started = time.perf_counter()
    training = Run(config, seeds, device, is_fast=not request.is_plain)
    say(f"set up in {time.perf_counter() - started:.1f} s; checkpoints go to {checkpoint}")
    if device == "cpu" and config.scale.value == "paper":
        say("the published length is for a GPU: on a CPU it takes hours or days; `--scale quick` takes a minute")
    return training


def _run(training: Run, checkpoint: Path) -> None:
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
            write_results(checkpoint, training, report)
            progress.shown = shown(report.metrics)
            progress.tell()
    if report is None:
        say(f"already finished; {results_of(checkpoint)} has the results")
        return
    for seed, metrics in report.by_seed.items():
        say(f"seed {seed}: {report.failures.get(seed, shown(metrics))}")
    if len(report.by_seed) - len(report.failures) > 1:
        say(summary([metrics for seed, metrics in report.by_seed.items() if seed not in report.failures]))
    say(f"trained in {report.seconds:.1f} s; {results_of(checkpoint)} has the results")


def _calibrate(config: RunConfig, seed: int, has_tables: bool) -> None:
    """Print which multiple of the true kappa the loss prefers."""
    if not config.experiment.has_truth:
        raise ValueError("A calibration scan needs a known truth: use the task 'toy'.")
    task = config.task.build([seed])
    phases = [i for i, phase in enumerate(config.training.phases) if phase.trained is not Trained.MU]
    if not phases:
        raise ValueError("A calibration scan is about kappa, which no phase of `training.phases` trains.")
    source = config.training.negatives_at(phases[-1])
    loss = config.loss.build()
    loss.has_tables = has_tables
    loss.expect(source)
    n_anchors = 512 if source.are_common else 2048  # with many negatives each, or with few
    scan = calibration_scan(
        task, loss, source, config.training.n_negatives, n_anchors=n_anchors, law=config.encoder.law
    )
    say("c (kappa-hat = c kappa):  " + "  ".join(f"{factor:.3g}" for factor in scan.factors))
    say("mean loss:                " + "  ".join(f"{loss:.4f}" for loss in scan.losses))
    say(scan.warning or f"optimum at c = {scan.best:.3g}")
