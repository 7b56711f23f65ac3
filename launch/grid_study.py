"""Which study `launch/grid.py` is asked for: a new one or one to go on with."""

import argparse
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from launch.command import chosen_data, named, settings

if TYPE_CHECKING:
    from pcl.config import Plain
    from pcl.studies.ledger import StudyFolder
    from pcl.studies.space import SearchSpace
    from pcl.studies.study import StudySpec


def asked_study(arguments: argparse.Namespace) -> tuple["SearchSpace", "StudySpec", "StudyFolder"]:
    """What is asked for: a new study or one to go on with. Makes nothing."""
    from pcl.studies.ledger import StudyFolder  # noqa: PLC0415
    from pcl.studies.space import load_space  # noqa: PLC0415
    from pcl.studies.study import StudySpec, check_writable, latest_study, read_seeds  # noqa: PLC0415

    check_writable(arguments.storage)
    if arguments.resume is not None:
        fixed = ("space", "scale", "fidelity", "set", "seeds", "name", "data")
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
        if space.task != "toy" and not spec.data.endswith(chosen_data(str(spec.overrides["task.data"])).fingerprint):
            raise ValueError(f"The images {spec.overrides['task.data']} have changed since {folder.name!r} began.")
        return space, spec, folder
    if arguments.space is None:
        raise ValueError("`--space NAME`, `--resume` or `--list` must be given.")
    space = load_space(arguments.space)
    scale = arguments.scale or ("paper" if machine()["GPU"] else "quick")
    if space.is_sampled:
        raise ValueError(f"The space {space.name!r} has Ray domains, and this version runs grids: list their values.")
    overrides, data = _with_data(arguments, space)
    is_file = arguments.space.endswith(".py") or "/" in arguments.space
    spec = StudySpec(
        str(Path(arguments.space).absolute()) if is_file else space.name,
        space.fingerprint(),
        arguments.fidelity or "reference",
        scale,
        overrides,
        read_seeds(arguments.seeds or "") or (space.tuning_seeds if scale == "paper" else space.tuning_seeds[:1]),
        space.report_seeds,
        data,
    )
    spec.trials(space, 0, {})  # every cell is possible, or is refused here
    name = arguments.name or "-".join([*_names(space, spec), scale, time.strftime("%Y%m%d-%H%M%S")])
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise ValueError(f"`--name` must be letters, digits, '-', '_' and '.', but got {name!r}.")
    return space, spec, StudyFolder(arguments.storage / name)


def _with_data(arguments: argparse.Namespace, space: "SearchSpace") -> tuple[dict[str, "Plain"], str]:
    """The settings of `--set`, those that say which images are used, and the data's name and fingerprint."""
    values: dict[str, Plain] = {**settings(arguments.set)}
    if space.task == "toy":
        if arguments.data is not None:
            raise ValueError(f"`--data` is for spaces of images, but {space.name!r} has none.")
        return values, "toy"
    images = chosen_data(arguments.data)
    return {"task.data": named(arguments.data, images), **values}, f"{images.name}-{images.fingerprint}"


def _names(space: "SearchSpace", spec: "StudySpec") -> list[str]:
    """What a study's name begins with: results on different images are never mixed."""
    data = re.sub(r"[^A-Za-z0-9_.]+", "_", spec.data.rpartition("-")[0])
    return [space.name] if space.task == "toy" else [space.name, data]


def machine() -> dict[str, float]:
    """What a cluster that is started here will have."""
    import torch  # noqa: PLC0415

    return {"CPU": float(os.cpu_count() or 1), "GPU": float(torch.cuda.device_count())}
