"""The folders `launch`, `dashboards` and `search_spaces`: next to the package in a checkout, else inside it."""

import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
INSIDE = PACKAGE / "installed"  # where setup.py puts them: at the top level, their names could clash


def installed_folder(name: str) -> Path:
    """Return the path of one of the three folders."""
    return (INSIDE if INSIDE.is_dir() else PACKAGE.parent) / name


def command(name: str) -> str:
    """Return how the user starts a command: as `pcl NAME`, or in a checkout as a file."""
    is_script = sys.argv[0].partition(" ")[0] == "pcl"
    return f"pcl {name}" if is_script or INSIDE.is_dir() else f"python launch/{name}.py"
