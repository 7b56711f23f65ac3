"""Show studies in a browser: `python launch/board.py` serves the board and MLflow until Ctrl-C.

The board shows what MLflow has recorded: studies, their trials and winners, paired differences, the paper's numbers
compared with ours, and comparisons of runs. It links to MLflow's own pages, for which it starts a server unless one
runs, and to Ray's dashboard if there is one. `--export FOLDER` writes the same pages as files, which need no server.
"""

import argparse
from pathlib import Path

from launch.shared.command import Parser, run
from launch.shared.common_flags import storage_flag, tracking_flag

_PORT = 8300


def main() -> None:
    """Parse the command line, then serve or write."""
    given = vars(_parser().parse_args())
    from launch.viewing.board import BoardRequest, show  # noqa: PLC0415  -h answers at once

    port = given.pop("port")
    show(BoardRequest(**given, port=_PORT if port is None else port, is_port_fixed=port is not None))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    storage_flag(parser)
    tracking_flag(parser)
    parser.add_argument("--export", type=Path, help="write the board as files and stop")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)"
    )
    parser.add_argument("--port", type=int, help=f"port of the board (default: {_PORT}, or a free one)")
    parser.add_argument("--mlflow", metavar="URL", help="address of MLflow's pages, as browsers reach it (default: the "
                        "tracking server's, or that of a server started here)")  # fmt: skip
    parser.add_argument("--mlflow-port", type=int, default=5000, help="port of MLflow (default: 5000, or a free one)")
    parser.add_argument("--ray", metavar="URL", help="address of Ray's dashboard (default: looked up on this machine)")
    return parser


if __name__ == "__main__":
    run(main)
