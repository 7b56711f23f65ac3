"""CIFAR-10H from files and from the network, a hundred times smaller, and the command that gets it."""

import hashlib
import io
import pickle
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR10

from launch import data
from launch.shared.image_choice import chosen_data
from pcl.data import arrays, fetch, load, resolve, sources, take
from pcl.data.arrays import Arrays, image_set
from pcl.data.sources import silent
from tests.support.commands import called
from tests.support.file_server import FileServer, serving

N_TEST, N_TRAIN = 100, 500


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as running:
        yield running


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Arrays as of CIFAR-10 and CIFAR-10H, where the real sizes are not asked for."""
    monkeypatch.setattr(arrays, "_N_TEST", N_TEST)
    monkeypatch.setattr(arrays, "_N_TRAIN", N_TRAIN)
    random = np.random.default_rng(1)
    labels = np.arange(N_TEST) % 10
    return {
        "test_images": random.integers(0, 256, (N_TEST, 32, 32, 3), dtype=np.uint8),
        "test_labels": labels,
        "train_images": random.integers(0, 256, (N_TRAIN, 32, 32, 3), dtype=np.uint8),
        "train_labels": np.arange(N_TRAIN) // 50,
        "cifar10h_probs": 0.75 * np.eye(10)[labels] + 0.025,
    }


def npz(path: Path, values: dict[str, Any]) -> Path:
    np.savez(path, **values)
    return path


def test_npz_round_trip(tmp_path: Path, contents: dict[str, Any]) -> None:
    source = npz(tmp_path / "cifar10.npz", contents)
    images = take(source, tmp_path / "none.npy", tmp_path / "data", silent)
    assert (images.name, images.classes[3]) == ("cifar10h", "cat")
    assert np.array_equal(images.images.permute(0, 2, 3, 1).numpy(), contents["test_images"])
    assert np.array_equal(images.train_images.permute(0, 2, 3, 1).numpy(), contents["train_images"])
    assert images.soft_labels[0, 0] == pytest.approx(0.775)
    for text in ("auto", "cifar10h"):
        assert resolve(text, tmp_path / "data").fingerprint == images.fingerprint
    # As a file of the user's own it has its own name.
    own = resolve(str(source), tmp_path)
    assert (own.name, own.classes[3]) == ("cifar10", "3")
    assert torch.equal(own.images, images.images)
    with pytest.raises(ValueError, match="must not be called 'cifar10h', the name of another image set; rename it"):
        resolve(str(npz(tmp_path / "cifar10h.npz", contents)), tmp_path)


def test_authors_file_beside_the_npz(
    tmp_path: Path, contents: dict[str, Any], monkeypatch: pytest.MonkeyPatch, server: FileServer
) -> None:
    probs = tmp_path / "probs.npy"
    np.save(probs, contents.pop("cifar10h_probs"))
    source = npz(tmp_path / "cifar10.npz", contents)
    with pytest.raises(ValueError, match=r"probs.npy must be the authors' cifar10h-probs.npy .* or damaged"):
        take(source, probs, tmp_path, silent)
    server.files["/cifar10h-probs.npy"] = probs.read_bytes()
    monkeypatch.setattr(sources, "PROBS", server.remote("cifar10h-probs.npy"))
    assert take(source, probs, tmp_path, silent).soft_labels[0, 0] == pytest.approx(0.775)
    assert server.asked == []
    assert take(source, tmp_path / "none.npy", tmp_path, silent).soft_labels[0, 0] == pytest.approx(0.775)
    assert server.asked == [""]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_images": np.zeros((9, 32, 32, 3), np.uint8)}, r"test_images must be \(100, 32, 32, 3\), but got \(9,"),
        ({"train_images": np.zeros((500, 3, 32, 32), np.uint8)}, r"train_images must be \(500, 32, 32, 3\)"),
        ({"test_images": np.zeros((100, 32, 32, 3))}, r"test_images must be uint8 .*, but got float64"),
        ({"test_labels": np.zeros(100)}, r"test_labels must be whole numbers \(N,\), but got float64"),
        ({"test_labels": np.zeros(100, np.int64)}, r"many test images of every class, but test_labels has \[100, 0"),
        ({"test_labels": np.full(100, 10)}, r"hard_labels must lie in 0..9"),
        ({"test_labels": np.full(100, 10**9)}, "without large gaps, but got 1000000000"),
        ({"cifar10h_probs": np.full((100, 10), 0.2)}, "must sum to 1 in every row, but row 0 sums to 2"),
        ({"cifar10h_probs": np.full((100, 9), 1 / 9)}, r"shares must be \(100, 10\), but got \(100, 9\)"),
        ({"cifar10h_probs": np.roll(np.eye(10)[np.arange(100) % 10], 1, 0)}, "in the order of the test images.* 0.0%"),
        ({"test_labels": np.array([object()] * 100)}, "damaged, or holds objects"),
    ],
)
def test_wrong_arrays(tmp_path: Path, contents: dict[str, Any], change: dict[str, Any], message: str) -> None:
    source = npz(tmp_path / "cifar10.npz", {**contents, **change})
    with pytest.raises(ValueError, match=message):
        take(source, tmp_path / "none.npy", tmp_path / "data", silent)
    assert not (tmp_path / "data").exists()


def test_labels_alone_are_one_hot() -> None:
    none = np.empty(0, np.uint8)
    pixels = np.zeros((4, 32, 32, 3), np.uint8)
    images = image_set("own", Arrays(pixels, np.array([0, 2, 1, 2]), none, none, none, none))
    assert images.soft_labels.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1]]
    assert images.classes == ("0", "1", "2")
    with pytest.raises(ValueError, match="must not be negative, but one is -1"):
        image_set("own", Arrays(pixels, np.array([0, -1, 1, 2]), none, none, none, none))
    with pytest.raises(ValueError, match="at least two classes must be given, but got 1"):
        image_set("own", Arrays(pixels, np.zeros(4, np.int64), none, none, none, none))


@pytest.fixture
def archive(contents: dict[str, Any], monkeypatch: pytest.MonkeyPatch, server: FileServer) -> bytes:
    """CIFAR-10 as torchvision has it, and CIFAR-10H, on the server."""

    def rows(which: str, part: slice) -> dict[str, Any]:
        pixels = contents[f"{which}_images"][part].transpose(0, 3, 1, 2).reshape(-1, 3072)
        return {"data": pixels, "labels": contents[f"{which}_labels"][part].tolist()}

    files = {f"data_batch_{i + 1}": rows("train", slice(100 * i, 100 * (i + 1))) for i in range(5)}
    files |= {"test_batch": rows("test", slice(None)), "batches.meta": {"label_names": list("abcdefghij")}}
    packed = io.BytesIO()
    digests = {}
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, value in files.items():
            content = pickle.dumps(value)
            digests[name] = hashlib.md5(content).hexdigest()
            entry = tarfile.TarInfo(f"{CIFAR10.base_folder}/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    stored = io.BytesIO()
    np.save(stored, contents["cifar10h_probs"])
    server.files = {
        f"/{CIFAR10.filename}": packed.getvalue(), "/cifar10h-probs.npy": stored.getvalue(),
        "/cifar10h-counts.npy": b"counts",
    }  # fmt: skip
    remote = server.remote(CIFAR10.filename, algorithm="md5")
    monkeypatch.setattr(CIFAR10, "url", remote.url)
    monkeypatch.setattr(CIFAR10, "tgz_md5", remote.digest)
    monkeypatch.setattr(CIFAR10, "train_list", [[f"data_batch_{i}", digests[f"data_batch_{i}"]] for i in range(1, 6)])
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", digests["test_batch"]]])
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": digests["batches.meta"]})
    monkeypatch.setattr(sources, "PROBS", server.remote("cifar10h-probs.npy"))
    monkeypatch.setattr(sources, "COUNTS", server.remote("cifar10h-counts.npy"))
    return packed.getvalue()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tarfile")  # torchvision names no filter; the archive is checked
def test_fetch(tmp_path: Path, contents: dict[str, Any], archive: bytes, server: FileServer) -> None:
    server.cuts = [10**9, 10**9, 100_000]
    images = fetch(tmp_path, silent)
    assert server.asked == ["", "", "", "bytes=100000-"]
    from_npz = take(npz(tmp_path / "cifar10.npz", contents), tmp_path, tmp_path / "other", silent)
    assert from_npz.fingerprint == images.fingerprint
    assert load(tmp_path / "cifar10h.pt").fingerprint == images.fingerprint
    assert not list(tmp_path.glob("*.part"))

    # A folder with torchvision's files, or that folder itself, without a network.
    for source in (tmp_path, tmp_path / CIFAR10.base_folder):
        again = take(source, tmp_path / "cifar10h-probs.npy", tmp_path / "again", silent)
        assert again.fingerprint == images.fingerprint
    assert len(server.asked) == 4

    # A damaged file is named, never used, and unpacked again by the next download.
    for name in ("data_batch_3", "batches.meta"):
        damaged = tmp_path / CIFAR10.base_folder / name
        damaged.write_bytes(damaged.read_bytes()[:-1])
        with pytest.raises(ValueError, match=f"{name} is damaged: its md5 is not"):
            take(tmp_path, tmp_path / "cifar10h-probs.npy", tmp_path / "again", silent)
        assert fetch(tmp_path, silent).fingerprint == images.fingerprint
    damaged.unlink()
    with pytest.raises(ValueError, match=r"must hold torchvision's files of CIFAR-10, but .*meta is not there"):
        take(tmp_path, tmp_path / "cifar10h-probs.npy", tmp_path / "again", silent)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tarfile")
def test_auto_takes_what_can_be_had(tmp_path: Path, archive: bytes, server: FileServer) -> None:
    told: list[str] = []
    assert resolve("auto", tmp_path, tell=told.append).name == "embedded"
    assert server.asked == []
    assert told[0].startswith("data: the embedded image set, drawn by the program, not CIFAR-10H (")
    with pytest.raises(
        ValueError, match=r"CIFAR-10H is not available: .*cifar10h.pt is not there. Run `python launch/data"
    ):
        resolve("cifar10h", tmp_path)
    files, server.files = server.files, {}
    assert resolve("auto", tmp_path, may_download=True, tell=told.append).name == "embedded"
    assert "answered 404" in told[1]
    server.files = files
    assert resolve("auto", tmp_path, may_download=True, tell=told.append).name == "cifar10h"
    assert len(told) == 2
    assert resolve("embedded", tmp_path).name == "embedded"


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tarfile")
@pytest.mark.parametrize("text", ["auto", "cifar10h"])
def test_a_damaged_cache_is_made_again_and_kept_beside_the_new_one(
    text: str, tmp_path: Path, archive: bytes, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    path, told = tmp_path / "cifar10h.pt", list[str]()
    images = fetch(tmp_path, silent)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ValueError, match="is damaged"):
        resolve(text, tmp_path)  # as a trial would: it downloads nothing
    files, server.files = server.files, {}
    for file in tmp_path.glob("cifar10h-*.npy"):
        file.unlink()
    with pytest.raises(ValueError, match="is damaged"):  # and takes no other images instead
        resolve(text, tmp_path, may_download=True, tell=told.append)
    assert [found.name for found in tmp_path.glob("cifar10h.pt*")] == ["cifar10h.pt"]
    server.files = files
    assert resolve(text, tmp_path, may_download=True, tell=told.append).fingerprint == images.fingerprint
    assert load(path).fingerprint == images.fingerprint
    (aside,) = tmp_path.glob("cifar10h.pt.damaged-*")
    assert aside.name in capsys.readouterr().err
    assert not told


# The command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--from", "none.npz"),
            "`--from` must name an .npz or a folder with torchvision's files, but none.npz is not",
        ),
        (("--from", "README.md"), "README.md must be an .npz of arrays, but cannot be read as one"),
        (("--from", "tests"), "tests must hold torchvision's files of CIFAR-10, but tests/cifar-10-batches-py/data"),
        (("--cifar10h", "README.md"), "`--cifar10h` goes with `--from`"),
        (("--from", "README.md", "--cifar10h", "none.npy"), "but none.npy is no file."),
        (("--folder", "README.md"), "`--folder` must name a folder, but README.md is a file."),
        (("--picture", "tests"), "`--picture` must name a file, but tests is a folder."),
    ],
)
def test_command_refuses(arguments: tuple[str, ...], message: str) -> None:
    refused = called("launch/data.py", data.main, *arguments)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_command_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # which nobody listens at
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setattr("urllib.request._opener", None)  # an earlier download has one with the proxies of its time
    offline = called("launch/data.py", data.main, "--folder", str(tmp_path))
    assert offline.returncode == 2
    assert "raw.githubusercontent.com cannot be reached" in offline.stderr
    assert "`--from FILE`" in offline.stderr
    assert offline.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tarfile")
def test_command_tells_of_its_progress(
    tmp_path: Path, archive: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["launch/data.py", "--folder", str(tmp_path)])
    data.main()
    first = capsys.readouterr().out
    assert "cifar-10-python.tar.gz  100%  1.8 of 1.8 MB  ETA 0:00\n" in first
    assert "100 images with shares of annotators" in first
    data.main()
    again = capsys.readouterr().out
    assert again.startswith(f"{tmp_path}/cifar10h.pt is there already\n")
    assert again.splitlines()[-1] == first.splitlines()[-1]

    # So does any other command that downloads by itself.
    monkeypatch.setenv("PCL_DATA", str(tmp_path / "elsewhere"))
    assert chosen_data(None).name == "cifar10h"
    assert "cifar-10-python.tar.gz  100%  1.8 of 1.8 MB  ETA 0:00\n" in capsys.readouterr().out
