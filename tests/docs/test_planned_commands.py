"""Studies that the README and the manual show can be planned, at the scale smoke and in this process."""

import re
from pathlib import Path

import numpy as np
import pytest

from launch.ablate import main as ablate
from launch.grid import main as grid
from launch.reproduce import main as reproduce
from tests.docs.pages import commands
from tests.docs.test_documented_commands import MADE, write_files
from tests.docs.test_folder_tutorial import write_folder
from tests.support.commands import called

PROGRAMS = {"launch/grid.py": grid, "launch/ablate.py": ablate, "launch/reproduce.py": reproduce}
ELSEWHERE = ("--address", "--storage", "--tracking-uri", "--output", "--name")  # where it runs and is kept: not here
RESOURCES = ("--gpus-per-trial", "--side-by-side", "--scale", "--runner")  # this machine's, and smoke's
FOLDER = "path/to/folder"  # of a user's own images
NEEDS_A_STUDY = ("--resume", "--warm-start", "--list")  # or plans nothing


def planned(words: list[str]) -> tuple[str, ...]:
    """The words of a study's command for a plan here; none if it is no such command."""
    if "--" in words:  # of submit.py
        words = ["python", *words[words.index("--") + 1 :]]
    if words[1] not in PROGRAMS or set(words) & set(NEEDS_A_STUDY):
        return ()
    kept: list[str] = [words[1]]
    rest = iter(words[2:])
    for word in rest:
        if word in (*ELSEWHERE, *RESOURCES):
            next(rest)
        elif word == "--data":
            data = next(rest)
            kept += ["--data", data if data == FOLDER or data.endswith(".npz") else "embedded"]
        elif word != "--plan":
            kept.append(word)
    return tuple(kept) if len(kept) > 1 else ()


STUDIES = list(dict.fromkeys(filter(None, (planned(command.words) for command in commands()))))


@pytest.mark.slow
@pytest.mark.parametrize("words", STUDIES, ids=map(" ".join, STUDIES))
def test_a_documented_study_can_be_planned(words: tuple[str, ...], tmp_path: Path) -> None:
    write_files(tmp_path)
    if FOLDER in words:
        write_folder(tmp_path / FOLDER, 0, 20)
    files = [word for word in words if word.endswith(".npz")]
    for name in files:
        numbers = np.random.default_rng(0)
        np.savez(tmp_path / name, features=numbers.normal(size=(60, 8)), labels=np.arange(60) % 3)
    program, *given = (str(tmp_path / word) if word in (*MADE, *files, FOLDER) else word for word in words)
    here = ("--scale", "smoke", "--runner", "inline", "--plan", "--storage", str(tmp_path / "runs"))
    has_images = "--data" not in given and re.search("cifar|images|--all", " ".join(given))
    images = ("--data", "embedded") if has_images else ()
    found = called(program, PROGRAMS[program], *given, *here, *images)
    assert found.returncode == 0, found.stderr
    assert "estimated" in found.stdout
