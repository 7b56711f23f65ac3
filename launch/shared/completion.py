"""Shell completion of `pcl`: `eval "$(register-python-argcomplete pcl)"` once, or in the shell's start file."""

import argparse
from collections.abc import Iterable
from importlib import import_module

import argcomplete

from launch.shared.common_flags import PROFILES
from pcl.studies.paper.published import published_titles
from pcl.studies.space.declarations import ABLATIONS, SPACES


def complete(names: Iterable[str]) -> None:
    """Answer a shell that asks for completions of one of these commands; do nothing otherwise."""
    argcomplete.autocomplete(whole_parser(names), always_complete_options="long")


def whole_parser(names: Iterable[str]) -> argparse.ArgumentParser:
    """Return the parser of all commands as one."""
    whole = argparse.ArgumentParser(prog="pcl")
    commands = whole.add_subparsers()
    tables = [name.partition(":")[::2] for name in published_titles()]
    known = {
        "space": SPACES.names(),
        "fidelity": list(PROFILES),
        "ablation": ABLATIONS.names(),
        "table": [name for kind, name in tables if kind == "tab"],
        "figure": [name for kind, name in tables if kind != "tab"],
    }
    for name in names:
        own = import_module(f"launch.{name}")._parser()
        for action in own._actions:
            if action.dest in known:
                action.completer = argcomplete.ChoicesCompleter(dict.fromkeys(known[action.dest], ""))  # type: ignore[attr-defined]
        commands.add_parser(name, parents=[own], add_help=False)
    return whole
