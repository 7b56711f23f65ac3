"""Rows that `launch/reproduce.py --row` trains, and what they need before."""

from pathlib import Path
from typing import Any

import pytest

from launch.reproduce import main
from launch.reproduction.cells import Cells
from launch.studies.images import Images
from tests.support.services import assert_refused


def test_rows_that_no_table_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--figure", "mc", "--table", "hyperparams", "--scale", "smoke", "--storage", str(tmp_path / "runs")]
    told = "`--row` must be one of K = 1, K = 4, K = 16, K = 64, K = 256, K = 512, "
    assert_refused("launch/reproduce.py", main, [*words, "--row", "K=4"], told, monkeypatch, capsys)
    assert not (tmp_path / "runs").exists()
    # A cell that the figure has, and a grid of the table.
    monkeypatch.setattr("sys.argv", ["reproduce.py", *words, "--row", "K = 4", "--row", "ELK", "--plan"])
    monkeypatch.setattr("launch.reproduction.command.costs_here", lambda *_: [])
    main()
    said = capsys.readouterr().out
    assert "  1 cells, each once however many tables have it: 1 to be trained, 0 in MLflow\n" in said
    assert "grids to be searched on tuning seeds, with their trials: ELK (12)\n" in said


@pytest.mark.parametrize(("row", "is_pretrained"), [("K = 4", False), ("ELK", True)])
def test_a_backbone_is_pretrained_for_rows_of_images_alone(
    row: str, is_pretrained: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the plan says, and as it is done before anything is trained."""
    monkeypatch.setenv("PCL_DATA", str(tmp_path / "data"))
    words = ["--figure", "mc", "--table", "bench_cifar", "--scale", "quick", "--data", "embedded", "--row", row]
    words += ["--storage", str(tmp_path / "runs"), "--runner", "inline"]
    monkeypatch.setattr("launch.reproduction.command.costs_here", lambda *_: [])
    monkeypatch.setattr("sys.argv", ["reproduce.py", *words, "--plan"])
    main()
    assert ("pretraining comes first" in capsys.readouterr().out) is is_pretrained

    done: list[str] = []

    def pretrain(images: Images) -> Images:
        done.append("pretrained")
        return images

    def train(_resumption: Any, _setting: Any, cells: Cells, *_: Any) -> None:
        done.append(f"{len(cells.trials)} trained")

    monkeypatch.setattr(Images, "with_weights", pretrain)
    monkeypatch.setattr("launch.reproduction.command._train", train)
    monkeypatch.setattr("sys.argv", ["reproduce.py", *words])
    main()
    assert done == ["pretrained"] * is_pretrained + ["1 trained"]
