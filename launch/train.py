"""Train one run without Ray: `python launch/train.py --fidelity reference --seeds 4 --set loss.n_samples=16`.

It saves a checkpoint at evaluations. Run the same command again to continue from it; a finished run is not repeated.
"""

import argparse
from pathlib import Path

from launch.shared.command import DATA_HELP, SKIP_BAD_HELP, WEIGHTS_HELP, Parser, device_flag, run
from launch.shared.common_flags import (
    SCALES,
    fidelity_flag,
    json_flag,
    one_of,
    only_json_on_stdout,
    part_flag,
    seeds_flag,
)
from launch.training.requests import TrainRequest


def main() -> None:
    """Parse the command line, train and report."""
    arguments = _parser().parse_args()
    if arguments.is_json:
        only_json_on_stdout(("--show-config", arguments.show_config), ("--calibrate", arguments.calibrate))
    request = request_of(arguments)
    request.check()
    from launch.training.single_run import train  # noqa: PLC0415  -h and typing errors answer at once

    train(request)


def request_of(arguments: argparse.Namespace) -> TrainRequest:
    """Return what the command line asks for."""
    given = dict(vars(arguments))
    seeds = (*given.pop("seeds"), *given.pop("seed")) or (4,)
    return TrainRequest(**given | {"overrides": tuple(arguments.overrides), "seeds": seeds})


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument("--config", type=Path, help="file with a whole configuration, such as a study's best.yaml")
    part_flag(parser, "task", "toy")
    parser.add_argument("--data", help=DATA_HELP)
    parser.add_argument("--skip-bad", action="store_true", help=SKIP_BAD_HELP)
    parser.add_argument("--weights", metavar="auto|none|FILE", help=WEIGHTS_HELP)
    part_flag(parser, "loss", "mc_info_nce")
    part_flag(parser, "encoder", "the task's")
    fidelity_flag(parser)
    parser.add_argument("--scale", type=one_of(SCALES), metavar="NAME",
                        help="smoke, quick or paper (default: paper on a GPU, else quick)")  # fmt: skip
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE",
                        help="change a setting; may be repeated")  # fmt: skip
    seeds_flag(parser, "random seeds, trained side by side (default: 4)")
    parser.add_argument("--seed", type=int, action="append", default=[], metavar="SEED", help="a seed; may be repeated")
    device_flag(parser)
    parser.add_argument("--plain", action="store_true", dest="is_plain",
                        help="without CUDA graphs, fused kernels and tables of similarities")  # fmt: skip
    parser.add_argument("--checkpoint", type=Path, help="checkpoint of the training (default: runs/train/...pt)")
    parser.add_argument(
        "--fresh", action="store_true", dest="is_fresh", help="start over even if there is a checkpoint"
    )
    parser.add_argument("--calibrate", action="store_true", help="print the kappa with the smallest loss, and stop")
    json_flag(parser)
    parser.add_argument("--show-config", action="store_true", help="print every setting and stop")
    return parser


if __name__ == "__main__":
    run(main)
