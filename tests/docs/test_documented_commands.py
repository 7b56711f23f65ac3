"""Every command that the README or the manual shows is one that its program takes, with settings that exist."""

import argparse
import importlib.util
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from launch.ablate import request_of as ablation_request
from launch.docs import parsers
from launch.grid import request_of as grid_request
from launch.reproduce import request_of as reproduction_request
from launch.studies.requests import ConfigRequest
from launch.train import request_of as training_request
from launch.training.single_run import _config
from pcl.config.run_config import RunConfig
from pcl.studies.space.ablation import load_ablation
from pcl.studies.space.search_space import load_space
from tests.docs.pages import Command, blocks, commands
from tests.support.services import ROOT

COMMANDS = commands()
PARSERS = parsers()
# First words of commands that are not ours, and why no parser of ours takes them.
OTHERS = {
    "pip": "installs packages",
    "source": "a shell's own, which activates the environment",
    "eval": "argcomplete's own words for a shell's start file",
    "mlflow": "MLflow's own command, which serves a model: tests/service/test_serving.py",
    "curl": "a request to that server",
    "ray": "Ray's own command, which prints its token",
    "docker": "Docker Compose, whose file has tests of its own",
    "echo": "a shell's own",
    "optuna-dashboard": "a package that the service does not need",
}
# Commands in words, not to be typed as they stand.
PATTERNS = ("python launch/NAME.py", "python -m launch.NAME")
MADE = {"my_space.py": "SPACE = ", "my_ablation.py": "ABLATION = ", "my_loss.py": "class Hinge"}  # files of examples


def write_files(folder: Path) -> None:
    """Write the files that commands name, as the manual itself has them."""
    for name, content in MADE.items():
        (block,) = (block for block in blocks("python") if content in block.text)
        (folder / name).write_text(block.text)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", COMMANDS, ids=map(str, COMMANDS))
def test_a_documented_command_is_taken(command: Command) -> None:
    words = command.words
    if words[0] in OTHERS or command.text in PATTERNS:
        return
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2])
    else:
        assert words[0] == "python"
        check(words[1], words[2:])


def check(program: str, words: list[str]) -> None:
    """Have a program's own parser read its words; then have what it asks for be read, as far as nothing runs."""
    folder, _, name = program.rpartition("/")
    assert folder == "launch"
    if name == "submit.py" and "--" in words:
        cut = words.index("--")
        check(words[cut + 1], words[cut + 2 :])
        words = words[:cut]
    try:
        given = PARSERS[name].parse_args(words)
    except SystemExit as ended:
        raise AssertionError(f"{name} refuses {' '.join(words)}") from ended
    {
        "grid.py": check_grid,
        "ablate.py": check_ablation,
        "reproduce.py": check_reproduction,
        "train.py": check_training,
    }.get(name, lambda _: None)(given)


def check_grid(given: argparse.Namespace) -> None:
    request = grid_request(given)
    if given.space is not None:
        space = load_space(given.space)
        check_settings(request.config, space.loss, space.task)
        known = space.experiment.metrics
        assert set(request.search.objectives if request.search else ()) <= set(known)


def check_ablation(given: argparse.Namespace) -> None:
    request = ablation_request(given)
    if given.ablation is not None:
        ablation = load_ablation(given.ablation)
        check_settings(request.config, ablation.loss, ablation.task)


def check_settings(config: ConfigRequest, loss: str, task: str) -> None:
    RunConfig.of(config.settings, loss=loss, task=task, profile=config.profile, scale=config.scale or "paper")


def check_reproduction(given: argparse.Namespace) -> None:
    reproduction_request(given)


def check_training(given: argparse.Namespace) -> None:
    request = training_request(given)
    if request.config is None:
        _config(replace(request, show_config=True))  # without images, which would be fetched


def test_commands_are_found() -> None:
    programs = Counter(command.words[1] for command in COMMANDS if command.words[0] == "python")
    assert {f"launch/{name}" for name in PARSERS} <= set(programs)
    assert {command.words[0] for command in COMMANDS} == {"python", "make", *OTHERS}
    assert {command.text for command in COMMANDS} >= set(PATTERNS)


def test_a_wrong_command_is_found() -> None:
    for text in (
        "python launch/grid.py --space toy_mcinfonc",
        "python launch/grid.py --space toy_elk --trails 3",
        "python launch/train.py --set loss.n_sample=3",
        "python launch/submit.py -- launch/ablate.py --ablation mc_samples --scale huge",
    ):
        with pytest.raises((AssertionError, ValueError)):
            test_a_documented_command_is_taken(Command("page", text))
