"""`launch/apply.py`: tables that agree with the encoder, a page that needs nothing, whole files or none."""

import csv
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from launch import apply as command
from launch.shared.command import run
from pcl.config.run_config import RunConfig
from pcl.data.embedded import embedded
from pcl.studies.inspection import application_files
from pcl.training.run import Run
from pcl.training.trained_encoder import TrainedEncoder
from tests.launch.test_look_command import Seen
from tests.support.smoke import smoke

N = 24
FILES = {
    "index.html", "kappa.csv", "kappa.parquet", "duplicates.csv", "outliers.csv", "summary.json", "unreadable.txt",
}  # fmt: skip


def called(*arguments: str | Path, code: int = 0) -> None:
    """The command in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["launch/apply.py", *map(str, arguments), "--device", "cpu"])
        with pytest.raises(SystemExit) as end:
            run(command.main)
    assert end.value.code == code


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("apply") / "run.pt"
    values = {"task.data": "embedded", "encoder.width": 2, "task.n_eval": 60}
    training = Run(RunConfig.of(values, task="images", scale="smoke"), seeds=(4,))
    list(training)
    training.save(path)
    return path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Embedded images in class folders, one of them twice, and a file that is no image."""
    drawn, folder = embedded(n=N, n_train=10).images, tmp_path / "my <b>set"
    for place, label in enumerate(drawn.hard_labels.tolist()):
        file = folder / drawn.classes[label] / f"{place:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(drawn.images[place].permute(1, 2, 0).numpy()).save(file)
    (folder / "disc" / "copy.png").write_bytes((folder / "disc" / "00.png").read_bytes())
    (folder / "ring" / "broken.png").write_bytes(b"not an image")
    return folder


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_tables_and_page(checkpoint: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called(checkpoint, pictures, "--batch-size", "7")
    told = capsys.readouterr().out
    assert (
        f"1 of {N + 2} files in {pictures} cannot be read as images: ring/broken.png. unreadable.txt names all." in told
    )
    output = checkpoint.parent / "apply" / "my__b_set"
    assert {file.name for file in output.iterdir()} == FILES
    assert (output / "unreadable.txt").read_text() == "ring/broken.png\n"
    rows, table = rows_of(output / "kappa.csv"), pyarrow.parquet.read_table(output / "kappa.parquet").to_pydict()
    assert len(rows) == N + 1
    assert [float(row["kappa"]) for row in rows] == sorted(float(row["kappa"]) for row in rows)
    trained = TrainedEncoder.read(checkpoint)
    pixels = [np.asarray(Image.open(pictures / row["image"])) for row in rows]
    posterior = trained.encode(torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2))
    angle = posterior.credible_threshold(0.95).arccos()
    mu = torch.tensor([[float(row[f"mu_{axis}"]) for axis in range(8)] for row in rows])
    for name, expected in (("kappa", posterior.kappa), ("credible_angle_95", angle)):
        found = torch.tensor([float(row[name]) for row in rows])
        assert torch.allclose(found, expected, rtol=1e-4)
        assert torch.equal(torch.tensor(table[name]), found)
    assert torch.allclose(mu, posterior.mu, atol=1e-5)
    assert torch.equal(torch.tensor(table["mu"]), mu)
    assert table["image"] == [row["image"] for row in rows]
    assert table["label"] == [row["label"] for row in rows] == [row["image"].split("/")[0] for row in rows]
    assert rows_of(output / "duplicates.csv")[0] == {"image": "disc/00.png", "other": "disc/copy.png", "angle": "0"}
    summary = json.loads((output / "summary.json").read_text())
    assert (summary["n_images"], summary["n_unreadable"]) == (N + 1, 1)
    assert summary["n_outliers"] == len(rows_of(output / "outliers.csv"))
    assert 0 <= summary["recall_at_1"] <= 1

    page = (output / "index.html").read_text()
    assert not re.search(r"https?:|url\(|@import|//", re.sub(r"base64,[A-Za-z0-9+/=]+", "", page))
    seen = Seen(page)
    assert "script" not in seen.tags
    assert all(address.startswith("data:image/png;base64,") for address in seen.addresses)
    assert "my <b>set by run.pt" in seen.text
    first = [alt for alt in seen.alts if "kappa" in alt]
    assert first[0].startswith(f"{rows[0]['image']}, kappa ")
    assert seen.text.index("Most ambiguous") < seen.text.index("Most certain") < seen.text.index("Near duplicates")
    assert any("Recall@1" in alt for alt in seen.alts)
    assert f"1 of {N + 2} files in {pictures} cannot be read as images: ring/broken.png." in seen.text


def test_images_without_classes_and_one_image_alone(checkpoint: Path, pictures: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    called(checkpoint, pictures / "ring", "--output", output)
    assert {file.name for file in output.iterdir()} == FILES
    assert "label" not in rows_of(output / "kappa.csv")[0]
    assert "recall_at_1" not in json.loads((output / "summary.json").read_text())
    (tmp_path / "one").mkdir()
    (pictures / "disc" / "copy.png").rename(tmp_path / "one" / "copy.png")
    called(checkpoint, tmp_path / "one", "--output", output)
    assert {file.name for file in output.iterdir()} == {"index.html", "kappa.csv", "kappa.parquet", "summary.json"}
    assert len(rows_of(output / "kappa.csv")) == 1


def test_a_folder_of_the_same_name_overwrites_nothing(
    checkpoint: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (tmp_path / name / "same" for name in "ab")
    for folder in (first, second):
        shutil.copytree(pictures / "ring", folder)
    called(checkpoint, first)
    called(checkpoint, first)
    before = (checkpoint.parent / "apply" / "same" / "kappa.csv").read_bytes()
    called(checkpoint, second, code=2)
    assert f"has the results of {first}; name another folder with `--output`" in capsys.readouterr().err
    assert (checkpoint.parent / "apply" / "same" / "kappa.csv").read_bytes() == before


def test_a_crash_leaves_whole_files(
    checkpoint: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    called(checkpoint, pictures, "--output", output)
    before = {file.name: file.read_bytes() for file in output.iterdir()}

    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(application_files.pyarrow.parquet.ParquetWriter, "write_table", fail)
        called(checkpoint, pictures, "--output", output, code=2)
        called(checkpoint, pictures, "--output", tmp_path / "new", code=2)
    assert {file.name: file.read_bytes() for file in output.iterdir()} == before
    assert {file.name for file in (tmp_path / "new").iterdir()} <= {"kappa.csv"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{run}", "{place}/empty"], "empty must have images in it, but is empty."),
        (["{run}", "{place}/none"], "none must be a folder of images, but is absent."),
        (["{run}", "{run}"], "run.pt must be a folder of images, but is a file."),
        (["{run}", "{place}/text"], "None of the 1 files in"),
        (["{place}/toy.pt", "{place}/text"], "toy.pt is of the task 'toy', which has no images."),
        (["nowhere", "{place}/text"], "There is no study 'nowhere' in runs, and no checkpoint nowhere."),
        (["{run}", "{place}/text", "--output", "{place}/text/out"], "`--output` must not lie in the folder of images"),
        (["{run}", "{place}/text", "--output", "{run}"], "`--output` must name a folder"),
        (["{run}", "{place}/text", "--seed", "9"], "`--seed` must be one of 4"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    words: list[str], message: str, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("empty", "text"):
        (tmp_path / name).mkdir()
    (tmp_path / "text" / "a.png").write_text("none")
    Run(smoke(), seeds=(1,)).save(tmp_path / "toy.pt")
    before = sorted(tmp_path.rglob("*"))
    called(*(word.format(place=tmp_path, run=checkpoint) for word in words), code=2)
    told = capsys.readouterr().err
    assert message in told
    assert len(told.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before
