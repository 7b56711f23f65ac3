import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from launch import look, train
from launch.grid import _parser as grid_parser
from launch.grid import request_of as grid_request
from launch.shared.image_choice import named, skipping
from launch.studies.grid_study import asked_study
from pcl.data import resolve


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two classes of pictures of several kinds and sizes, and a hidden file."""
    folder = tmp_path / "my pets"
    for label, colour in (("cat", (200, 10, 10)), ("dog", (10, 10, 200))):
        (folder / label / "deeper").mkdir(parents=True)
        Image.new("RGB", (100, 60), colour).save(folder / label / "a.png")
        Image.new("RGB", (600, 700), colour).save(folder / label / "b.jpg")
        Image.new("RGB", (16, 16), colour).convert("P").save(folder / label / "deeper" / "c.gif")
        (folder / label / ".DS_Store").write_text("hidden")
    (folder / "notes.txt").write_text("not in a class")
    return folder


def test_folder_of_images(pictures: Path, tmp_path: Path) -> None:
    images = resolve(str(pictures), tmp_path / "data")
    assert (images.name, images.classes) == ("my_pets", ("cat", "dog"))
    labels = images.hard_labels
    assert labels.tolist() not in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])  # mixed
    assert images.soft_labels.argmax(1).tolist() == labels.tolist()
    colours = images.images.float().mean((2, 3))
    assert (colours[labels == 0] - torch.tensor([200.0, 10, 10])).abs().max() < 8
    assert (colours[labels == 1] - torch.tensor([10.0, 10, 200])).abs().max() < 8
    assert labels.sum() == 3
    assert len(list((tmp_path / "data").iterdir())) == 1
    assert resolve(str(pictures), tmp_path / "data").fingerprint == images.fingerprint
    Image.new("RGB", (40, 40)).save(pictures / "dog" / "d.png")
    assert len(resolve(str(pictures), tmp_path / "data").images) == 7


def test_centre_is_kept(tmp_path: Path) -> None:
    wide = np.zeros((32, 96, 3), np.uint8)
    wide[:, 32:64] = 255
    for label in "ab":
        (tmp_path / "set" / label).mkdir(parents=True)
        Image.fromarray(wide).save(tmp_path / "set" / label / "x.png")
    assert (resolve(str(tmp_path / "set"), tmp_path).images == 255).all()


def test_kinds_of_pixels(tmp_path: Path) -> None:
    """Grey of 16 bits is not white, and transparent palettes are no reason to complain."""
    grey = Image.fromarray(np.full((32, 32), 100 << 8, np.uint16))
    palette = Image.new("RGB", (32, 32), (100, 100, 100)).quantize(2)
    for label, image, more in (("a", grey, {}), ("b", palette, {"transparency": bytes(2)})):
        (tmp_path / "set" / label).mkdir(parents=True)
        image.save(tmp_path / "set" / label / "x.png", **more)
    assert (resolve(str(tmp_path / "set"), tmp_path).images == 100).all()


def test_a_folder_is_named_by_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pictures: Path) -> None:
    monkeypatch.chdir(tmp_path)
    pictures.rename(tmp_path / "pets")
    data = resolve("pets", tmp_path / "data")
    assert named("pets", data) == str(tmp_path / "pets")
    assert named(skipping("pets", skip_bad=True), data) == f"skip-bad:{tmp_path / 'pets'}"
    assert named("embedded", resolve("embedded", tmp_path)) == named(None, resolve("embedded", tmp_path)) == "embedded"
    with pytest.raises(ValueError, match=r"`--skip-bad` goes with a folder of images: name it with `--data FOLDER`"):
        skipping(None, skip_bad=True)


def test_a_damaged_cache_is_set_aside_and_the_folder_read_again(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pictures / "dog" / "empty.png").touch()
    told, text = list[str](), str(skipping(str(pictures), skip_bad=True))
    before = resolve(text, tmp_path / "data", tell=told.append)
    (cache,) = (tmp_path / "data").glob("*.pt")
    cache.write_bytes(cache.read_bytes()[:-1000])
    assert resolve(text, tmp_path / "data", tell=told.append).fingerprint == before.fingerprint
    (aside,) = (tmp_path / "data").glob("*.damaged-*")
    assert aside.name in capsys.readouterr().err
    assert resolve(text, tmp_path / "data", tell=told.append).fingerprint == before.fingerprint
    assert told == [told[0]] * 3


def test_unreadable_files(pictures: Path, tmp_path: Path) -> None:
    (pictures / "cat" / "z.jpg").write_bytes((pictures / "cat" / "b.jpg").read_bytes()[:200])
    (pictures / "dog" / "empty.png").touch()
    (pictures / "dog" / "link.png").symlink_to("nowhere.png")
    message = r"3 of 9 files in .*my pets cannot be read as images: .*z.jpg, .*empty.png, .*link.png. Remove them, or"
    with pytest.raises(ValueError, match=message):
        resolve(str(pictures), tmp_path / "data")
    assert not (tmp_path / "data").exists()
    told: list[str] = []
    skipped = skipping(str(pictures), skip_bad=True)
    assert skipped is not None
    for _ in range(2):  # read, and from the cache
        images = resolve(skipped, tmp_path / "data", tell=told.append)
        assert len(images.images) == 6
    assert told[0] == told[1]
    assert told[0].startswith("3 of 9 files")
    for path in (pictures / "dog").rglob("*.*"):
        if path.is_file():
            path.write_text("no picture")
    with pytest.raises(ValueError, match=r"Every class must have an image, but these in .* have none: dog"):
        resolve(skipped, tmp_path / "data")
    with pytest.raises(ValueError, match=r"`--skip-bad` goes with a folder of images, but 'embedded' is none"):
        resolve(str(skipping("embedded", skip_bad=True)), tmp_path)


def test_folders_that_are_no_set(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    with pytest.raises(ValueError, match="at least two classes, but got none"):
        resolve(str(folder), tmp_path)
    (folder / "only").mkdir()
    with pytest.raises(ValueError, match="at least two classes, but got 1: only"):
        resolve(str(folder), tmp_path)
    (folder / "more").mkdir()
    with pytest.raises(ValueError, match=r"Every class must have an image, but these in .* have none: more, only"):
        resolve(str(folder), tmp_path)
    with pytest.raises(ValueError, match="must not be called 'embedded'"):
        resolve(str(folder.rename(tmp_path / "embedded")), tmp_path)
    with pytest.raises(ValueError, match=r"`--data` must be auto, .* but got 'cifar', and there is no such folder"):
        resolve("cifar", tmp_path)


def test_commands_leave_out_what_cannot_be_read(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the run, a study and a later look read the folder again."""
    monkeypatch.setenv("PCL_DATA", str(tmp_path / "data"))
    for number in range(9):
        Image.new("RGB", (32, 32), (20 * number, 50, 50)).save(pictures / "cat" / f"{number}.png")
    (pictures / "dog" / "empty.png").touch()

    def call(main: Callable[[], None], *words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["launch/x.py", *words, "--device", "cpu"])
        main()
        return capsys.readouterr().out

    kind, checkpoint = ("--task", "images", "--data", str(pictures), "--scale", "smoke"), str(tmp_path / "run.pt")
    with pytest.raises(ValueError, match="1 of 16 files in"):
        call(train.main, *kind, "--checkpoint", checkpoint)
    told = call(train.main, *kind, "--skip-bad", "--checkpoint", checkpoint)
    assert told.startswith(f"1 of 16 files in {pictures} cannot be read as images: {pictures}/dog/empty.png. They are")
    assert json.loads((tmp_path / "run.pt.json").read_text())["config"]["task.data"] == f"skip-bad:{pictures}"
    told = call(look.main, checkpoint)
    assert "1 of 16 files" in told
    assert "the test images of fold" in (tmp_path / "look" / "index.html").read_text()
    words = ["--scale", "smoke", "--data", str(pictures), "--skip-bad", "--storage", str(tmp_path / "runs")]
    spec = asked_study(grid_request(grid_parser().parse_args(["--space", "cifar_elk", *words]))).spec
    assert spec.overrides["task.data"] == f"skip-bad:{pictures}"
    impossible = grid_parser().parse_args(["--space", "cifar_mcinfonce_cifar10", *words])
    with pytest.raises(ValueError, match="needs separate training images, which 'my_pets' does not have"):
        asked_study(grid_request(impossible))
