"""Register a study's winner as a model in MLflow: `python launch/champion.py STUDY`.

The model takes images of any size, or numbers, and returns mu, kappa, the angle of the 95% credible cap and, for
images, the nearest training image. It carries its code: it loads and is served without this package and without Ray.
Running the command again makes a new version only if something has changed.
"""

import argparse

from launch.shared.command import Parser, run
from launch.shared.common_flags import storage_flag, tracking_flag


def main() -> None:
    """Parse the command line and register."""
    given = vars(_parser().parse_args())
    given["storage"].require_study(given["study"])
    from launch.studies.champion_command import ChampionRequest, register_champion  # noqa: PLC0415  typing errors first

    register_champion(ChampionRequest(**given))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument("study", metavar="STUDY", help="a study's name, folder or address")
    parser.add_argument("--alias", default="champion", help="alias of the version (default: champion)")
    parser.add_argument("--name", help="name of the registered model (default: the space's)")
    parser.add_argument("--seed", type=int, help="trained seed to register (default: the first that has not failed)")
    storage_flag(parser)
    tracking_flag(parser)
    return parser


if __name__ == "__main__":
    run(main)
