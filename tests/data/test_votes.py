"""Annotators' votes beside a user's images: soft labels, and rows that are refused with file and line."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from pcl.data import resolve
from pcl.data.images import ImageSet


def draw(path: Path, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (32, 32), (shade, shade, shade)).save(path)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Three images of cats, shades 0 to 2, and two of dogs, 3 and 4."""
    folder = tmp_path / "pets"
    for shade in range(5):
        draw(folder / ("cat" if shade < 3 else "dog") / f"{shade}.png", shade)
    return folder


def vote(folder: Path, *rows: str) -> None:
    (folder / "votes.csv").write_text("\n".join(["image,label,votes", *rows, ""]))


def shares(images: ImageSet) -> dict[int, list[float]]:
    """Soft labels by shade."""
    shades = images.images[:, 0, 0, 0].tolist()
    return dict(sorted(zip(shades, images.soft_labels.tolist(), strict=True)))


def test_votes_make_soft_labels_beside_class_folders(pets: Path, tmp_path: Path) -> None:
    before = resolve(str(pets), tmp_path / "data")
    vote(pets, "cat/1.png,cat,3", "cat/1.png,dog,1", "dog/3.png,cat,1", "dog/3.png,dog,1", "dog/3.png,cat,2", "")
    images = resolve(str(pets), tmp_path / "data")
    assert shares(images) == {0: [1, 0], 1: [0.75, 0.25], 2: [1, 0], 3: [0.75, 0.25], 4: [0, 1]}
    assert images.hard_labels.sum() == 2  # by the subfolders
    assert images.fingerprint != before.fingerprint
    vote(pets, "cat/1.png,cat,1", "cat/1.png,dog,1")
    other = resolve(str(pets), tmp_path / "data")
    assert shares(other)[1] == [0.5, 0.5]
    (pets / "votes.csv").unlink()
    assert resolve(str(pets), tmp_path / "data").fingerprint == before.fingerprint


def test_votes_about_every_image_need_no_class_folders(tmp_path: Path) -> None:
    folder = tmp_path / "flat"
    for shade in range(3):
        draw(folder / "all" / f"{shade}.png", shade)
    (folder / "votes.csv").write_bytes(
        "\ufeffimage,label,votes\r\nall/0.png,zebra,2\r\nall/1.png,ape,1\r\nall/1.png,zebra,1\r\n".encode()
    )
    with pytest.raises(ValueError, match=r"must have votes on every image, .* all/2.png has neither \(1 of 3"):
        resolve(str(folder), tmp_path / "data")
    (folder / "all" / "2.png").unlink()
    images = resolve(str(folder), tmp_path / "data")
    assert images.classes == ("ape", "zebra")
    assert shares(images) == {0: [0, 1], 1: [0.5, 0.5]}
    assert torch.equal(images.hard_labels, images.soft_labels.argmax(1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("picture,label,votes\n", r"votes.csv, line 1, must be 'image,label,votes', but is 'picture,label,votes'"),
        ("", r"line 1, must be 'image,label,votes', but is ''"),
        ("image,label,votes\n\n", r"votes.csv must have a row for each image and label, but has none"),
        (
            "image,label,votes\ncat/0.png,cat\n",
            r"votes.csv, line 2, must have image, label and votes, but has 2",
        ),
        ("image,label,votes\ncat/0.png,cat,1\n,cat,1\n", r"line 3, must name an image and a label"),
        ("image,label,votes\ncat/0.png,cat,-1\n", r"line 2, must have a whole number of votes, .* but has '-1'"),
        ("image,label,votes\ncat/0.png,cat,1.5\n", r"line 2, must have a whole number of votes, .* but has '1.5'"),
        ("image,label,votes\ncat/0.png,cow,1\n", r"line 2, has the label 'cow', but the classes are cat, dog"),
        ("image,label,votes\ncat/0.png,cat,1\ncat/9.png,cat,1\n", r"line 3, is about 'cat/9.png', but .* no such file"),
        ("image,label,votes\ncat/0.png,cat,0\ncat/0.png,dog,0\n", r"line 2, begins the rows about .* all have 0 votes"),
        ('image,label,votes\n"cat/0.png,cat,1\n', r"votes.csv, line 2, is not CSV"),
        ("image,label,votes\ncat/\xe9.png,cat,1\n", r"votes.csv must be a CSV file in UTF-8"),
    ],
)
def test_a_bad_row_is_refused_with_file_and_line(pets: Path, tmp_path: Path, text: str, message: str) -> None:
    (pets / "votes.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=message):
        resolve(str(pets), tmp_path / "data")
    assert not (tmp_path / "data").exists()
