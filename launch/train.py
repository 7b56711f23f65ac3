"""One training without Ray: `python launch/train.py --profile reference --seed 4 --set loss.n_samples=16`.

It writes checkpoints at evaluations. Run again, it goes on from there; a finished one is shown, not repeated.
"""

import argparse
from pathlib import Path

from launch.shared.command import SKIP_BAD_HELP, WEIGHTS_HELP, Parser, run


def main() -> None:
    """Parse the command line, train and report."""
    given = vars(_parser().parse_args())
    from launch.training.single_run import TrainRequest, train  # noqa: PLC0415  -h answers at once

    given.update(overrides=tuple(given["overrides"]), seeds=tuple(given["seeds"] or [4]))
    train(TrainRequest(**given))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="train.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, help="a whole configuration, such as a study's best.yaml")
    parser.add_argument("--task", help="toy (default) or images")
    parser.add_argument("--data", help="images: auto (default), cifar10h, embedded, or a folder of class folders")
    parser.add_argument("--skip-bad", action="store_true", help=SKIP_BAD_HELP)
    parser.add_argument("--weights", metavar="auto|none|FILE", help=WEIGHTS_HELP)
    parser.add_argument("--loss", help="mc_info_nce (default), hib, elk or info_nce")
    parser.add_argument("--profile", help="fidelity: paper, reference or exact (default: reference)")
    parser.add_argument("--scale", help="smoke, quick or paper (default: paper)")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE",
                        help="a setting; may be repeated")  # fmt: skip
    parser.add_argument("--seed", type=int, action="append", dest="seeds", metavar="SEED",
                        help="repeated, they train side by side (default: 4)")  # fmt: skip
    parser.add_argument("--device", default=None, help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--plain", action="store_true", dest="is_plain", help="without CUDA graphs and fused kernels")
    parser.add_argument("--checkpoint", type=Path, default=None, help="file (default: runs/train/...pt)")
    parser.add_argument(
        "--fresh", action="store_true", dest="is_fresh", help="start over even if there is a checkpoint"
    )
    parser.add_argument("--calibrate", action="store_true", help="say where the loss's optimum in kappa lies, and stop")
    parser.add_argument("--show-config", action="store_true", help="print every setting and stop")
    return parser


if __name__ == "__main__":
    run(main)
