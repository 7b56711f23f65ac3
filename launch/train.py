"""Train one run without Ray: `python launch/train.py --profile reference --seed 4 --set loss.n_samples=16`.

It saves a checkpoint at evaluations. Run the same command again to go on from there; a finished run is not repeated.
"""

import argparse
from pathlib import Path

from launch.shared.command import DATA_HELP, SKIP_BAD_HELP, WEIGHTS_HELP, Parser, device_flag, run


def main() -> None:
    """Parse the command line, train and report."""
    given = vars(_parser().parse_args())
    from launch.training.single_run import TrainRequest, train  # noqa: PLC0415  -h answers at once

    given.update(overrides=tuple(given["overrides"]), seeds=tuple(given["seeds"] or [4]))
    train(TrainRequest(**given))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument("--config", type=Path, help="file with a whole configuration, such as a study's best.yaml")
    parser.add_argument("--task", help="toy (default), images, or FILE.py:NAME of your own")
    parser.add_argument("--data", help=DATA_HELP)
    parser.add_argument("--skip-bad", action="store_true", help=SKIP_BAD_HELP)
    parser.add_argument("--weights", metavar="auto|none|FILE", help=WEIGHTS_HELP)
    parser.add_argument("--loss", help="mc_info_nce (default), hib, elk, info_nce, or FILE.py:CLASS of your own")
    parser.add_argument("--encoder", help="FILE.py:CLASS of your own (default: the task's)")
    parser.add_argument("--profile", help="of fidelity: paper, reference or exact (default: reference)")
    parser.add_argument("--scale", help="smoke, quick or paper (default: paper)")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE",
                        help="change a setting; may be repeated")  # fmt: skip
    parser.add_argument("--seed", type=int, action="append", dest="seeds", metavar="SEED",
                        help="random seed; repeat it to train several side by side (default: 4)")  # fmt: skip
    device_flag(parser)
    parser.add_argument("--plain", action="store_true", dest="is_plain", help="without CUDA graphs and fused kernels")
    parser.add_argument("--checkpoint", type=Path, help="of the training (default: runs/train/...pt)")
    parser.add_argument("--fresh", action="store_true", dest="is_fresh", help="start over even if there is one")
    parser.add_argument("--calibrate", action="store_true", help="print the kappa where the loss is smallest, and stop")
    parser.add_argument("--show-config", action="store_true", help="print every setting and stop")
    return parser


if __name__ == "__main__":
    run(main)
