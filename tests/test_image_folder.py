from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pcl.data import BadFiles, resolve


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
    assert images.hard_labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert images.soft_labels.argmax(1).tolist() == [0, 0, 0, 1, 1, 1]
    colours = images.images.float().mean((2, 3))
    assert (colours[:3] - torch.tensor([200.0, 10, 10])).abs().max() < 8
    assert (colours[3:] - torch.tensor([10.0, 10, 200])).abs().max() < 8
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


def test_unreadable_files(pictures: Path, tmp_path: Path) -> None:
    (pictures / "cat" / "z.jpg").write_bytes((pictures / "cat" / "b.jpg").read_bytes()[:200])
    (pictures / "dog" / "empty.png").touch()
    (pictures / "dog" / "link.png").symlink_to("nowhere.png")
    message = r"3 of 9 files in .*my pets cannot be read as images: .*z.jpg, .*empty.png, .*link.png. Remove them, or"
    with pytest.raises(ValueError, match=message):
        resolve(str(pictures), tmp_path / "data")
    assert not (tmp_path / "data").exists()
    told: list[str] = []
    for _ in range(2):  # read, and from the cache
        images = resolve(str(pictures), tmp_path / "data", bad_files=BadFiles.SKIP, tell=told.append)
        assert len(images.images) == 6
    assert told[0] == told[1]
    assert told[0].startswith("3 of 9 files")
    for path in (pictures / "dog").rglob("*.*"):
        if path.is_file():
            path.write_text("no picture")
    with pytest.raises(ValueError, match=r"Every class must have an image, but dog in .* has none"):
        resolve(str(pictures), tmp_path / "data", bad_files=BadFiles.SKIP)


def test_folders_that_are_no_set(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    with pytest.raises(ValueError, match="at least two classes, but got none"):
        resolve(str(folder), tmp_path)
    (folder / "only").mkdir()
    with pytest.raises(ValueError, match="at least two classes, but got 1: only"):
        resolve(str(folder), tmp_path)
    (folder / "more").mkdir()
    with pytest.raises(ValueError, match="Every class must have an image, but more, only in"):
        resolve(str(folder), tmp_path)
    with pytest.raises(ValueError, match="must not be called 'embedded'"):
        resolve(str(folder.rename(tmp_path / "embedded")), tmp_path)
    with pytest.raises(ValueError, match=r"`--data` must be auto, .* but got 'cifar', and there is no such folder"):
        resolve("cifar", tmp_path)
