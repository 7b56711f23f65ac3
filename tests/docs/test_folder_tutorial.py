"""The commands from a folder to a model run as the manual has them, at the scale smoke, on embedded images."""

import csv
import json
import re
from pathlib import Path

import pytest
from mlflow import MlflowClient
from PIL import Image

from launch.apply import main as apply
from launch.champion import main as champion
from launch.grid import main as grid
from pcl.data.embedded import embedded
from tests.docs.pages import ROOT
from tests.support.commands import called

EXPECTED_SECONDS = 50
PROGRAMS = {"launch/grid.py": grid, "launch/champion.py": champion, "launch/apply.py": apply}
# What a test's machine and time need beside the manual's words.
SMALL = {"launch/grid.py": ("--scale", "smoke", "--runner", "inline", "--seeds", "1", "--no-finalize")}


def tutorial() -> list[list[str]]:
    """The words of the commands, without `python` and variables of the environment."""
    text = (ROOT / "docs" / "images.md").read_text()
    (block,) = re.findall(r"^## From a folder to a model\n\n```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [line.split()[1:] for line in block.splitlines()]


def write_folder(folder: Path, first: int, n: int) -> None:
    """Write images of the embedded set into class folders, with the votes of its annotators."""
    drawn = embedded(n=first + n, n_train=10).images
    rows = []
    for place in range(first, first + n):
        file = folder / drawn.classes[int(drawn.hard_labels[place])] / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(drawn.images[place].permute(1, 2, 0).numpy()).resize((48, 40)).save(file)
        shares = zip(drawn.classes, drawn.soft_labels[place].tolist(), strict=True)
        rows += [(file.relative_to(folder), name, round(50 * share)) for name, share in shares if share]
    with (folder / "votes.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("image", "label", "votes"), *rows])


@pytest.mark.slow
def test_from_a_folder_to_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCL_DATA", str(tmp_path / "data"))
    write_folder(tmp_path / "folder", 0, 40)
    write_folder(tmp_path / "new_images", 40, 20)
    *commands, serving = tutorial()
    assert [words[0] for words in commands] == list(PROGRAMS)
    for program, *words in commands:
        here = [word.replace("path/to/", f"{tmp_path}/") for word in words]
        more = (*SMALL.get(program, ()), "--storage", str(tmp_path / "runs"))
        done = called(program, PROGRAMS[program], *here, *more)
        assert done.returncode == 0, done.stderr
    served = re.fullmatch(r"mlflow models serve -m models:/(\w+)@(\w+) --env-manager local -p \d+", " ".join(serving))
    assert served  # tests/service/test_serving.py serves
    model = MlflowClient(f"sqlite:///{tmp_path}/runs/mlflow.db").get_model_version_by_alias(*served.groups())
    assert int(model.version) == 1
    study = tmp_path / "runs" / "mine"
    assert len(list((study / "trials").iterdir())) == 8
    assert "val/entropy_rank_corr" in (study / "trials.csv").read_text()  # of the votes
    summary = json.loads((study / "apply" / "new_images" / "summary.json").read_text())
    assert (summary["n_images"], summary["n_unreadable"]) == (20, 0)
    assert "recall_at_1" in summary
