"""The `pcl` command: `pcl grid` runs the same code as `python launch/grid.py`, and so on for all commands."""

import ast
import os
import sys
from importlib import import_module
from pathlib import Path

from pcl.config.suggestion import suggestion
from pcl.storage.installation import installed_folder

_OF_A_CHECKOUT = "docs"  # writes the manual, which is not installed
_USAGE = """usage: pcl COMMAND ...

Tune and ablate probabilistic embeddings; `pcl COMMAND -h` shows a command's options.
"""


def main() -> None:
    """Run the command that the first word names, or list all commands."""
    files = {file.stem: file for file in installed_folder("launch").glob("[a-z]*.py")}
    names = sorted(set(files) - {_OF_A_CHECKOUT})
    sys.path.insert(0, str(installed_folder("launch").parent))
    if "_ARGCOMPLETE" in os.environ:
        import_module("launch.shared.completion").complete(names)
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("-h", "--help"):
        print(_USAGE, *(f"  {name:<12}{_title(files[name])}" for name in names), sep="\n")
        return
    if name not in names:
        told = f"{name!r} is not a command; choose one of {', '.join(names)}.{suggestion(name, names)}"
        print(f"pcl: {told}", file=sys.stderr)
        sys.exit(2)
    sys.argv[:2] = [f"pcl {name}"]
    command = import_module(f"launch.{name}")
    import_module("launch.shared.command").run(command.main)


def _title(file: Path) -> str:
    """Return the first words of a command's docstring."""
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition(":")[0].partition("\n")[0]


if __name__ == "__main__":
    main()
