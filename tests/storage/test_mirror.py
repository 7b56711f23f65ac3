"""Copies of folders that are in a store: a folder that stands for one, and a server that speaks S3."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pyarrow.fs import FileSystem

from pcl.data import sources
from pcl.data.images import SIDE, ImageSet, cache_file, save
from pcl.data.weights import Weights, keep_weights, named_weights, weights_folder
from pcl.storage import mirror as mirrors
from pcl.storage.mirror import UNMIRRORED, Mirrored, mirror_of
from pcl.storage.object_stores import read
from pcl.studies.cluster.joining import _why_not
from pcl.studies.ledger import lease
from pcl.studies.ledger.folders import Lost, Result, Row, Status, StudyFolder
from pcl.studies.ledger.lease import keep_outputs, leased
from pcl.studies.ledger.opened_study import latest_study, opened
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.space.trial import Trial
from tests.support.buckets import S3, s3

__all__ = ["s3"]


@pytest.fixture(params=["folder", "bucket"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, s3: S3) -> str:
    return (tmp_path / "store").as_uri() if request.param == "folder" else s3.bucket()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"BEAT_S": 0.1, "_SETTLE_S": 0.3}.items():
        monkeypatch.setattr(lease, name, seconds)
    monkeypatch.setattr(mirrors, "_PATIENCE_S", 1.0)


def written(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_what_one_pushes_another_pulls(uri: str, tmp_path: Path) -> None:
    one, two = (Mirrored(tmp_path / name, uri) for name in ("one", "two"))
    one.check()
    assert one.names() == []
    two.pull_all()
    written(one.path, a="first", b="", large="x" * 20_000_000)
    written(one.path / "in" / "side", c="deep")
    one.push_all(left_out=("b",))
    assert two.names() == ["a", "in/side/c", "large"]
    assert one.folders() == ["in"]
    written(two.path, gone="of an earlier time")
    two.pull_all(left_out=("large",))
    assert (two.path / "in/side/c").read_text() == "deep"
    assert not (two.path / "large").exists()
    assert not (two.path / "gone").exists()
    two.pull("large", "b")
    assert (two.path / "large").stat().st_size == 20_000_000
    written(one.path, a="and then", b="")
    one.push("a", "b")
    two.pull("a", "b")
    assert ((two.path / "a").read_text(), (two.path / "b").read_text()) == ("and then", "")
    inside = two.inside("in").inside("side")
    assert inside.beside("side").names() == ["c"]
    inside.delete("c", "not there")
    one.pull("in/side/c")
    assert not (one.path / "in/side/c").exists()
    assert one.time_of("a") > one.time_of("not there") == 0.0


def test_a_file_that_is_replaced_while_it_is_read_is_read_again(s3: S3, tmp_path: Path) -> None:
    """The size is asked for before the content: of a longer one, the beginning would come."""
    mirror = Mirrored(tmp_path, s3.bucket())
    written(tmp_path, file="short")
    mirror.push("file")
    store, root = mirror._store()

    class Changing:
        n_opened = 0

        def open_input_file(self, path: str) -> object:
            found = store.open_input_file(path)
            found.size()
            self.n_opened += 1
            if self.n_opened == 1:
                written(tmp_path, file="now it is longer")
                mirror.push("file")
            return found

        def get_file_info(self, path: str) -> object:
            return store.get_file_info(path)

    changing = Changing()
    assert read(changing, f"{root}/file") == b"now it is longer"  # type: ignore[arg-type]
    assert changing.n_opened == 2


def test_what_cannot_be_used_is_told_in_a_sentence(s3: S3, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"NO_SUCH_BUCKET.*does not exist\.$"):
        Mirrored(tmp_path, s3.address("missing")).check()
    assert "NO_SUCH_BUCKET" in _why_not(s3.address("missing"))  # as a node would say
    assert not _why_not(s3.bucket())
    with pytest.raises(ValueError, match="Unrecognized filesystem type"):
        Storage.of("ftp://host/runs").check()
    with pytest.raises(ValueError, match="endpoint_overide"):
        Storage.of("s3://bucket/runs?endpoint_overide=here").check()


@pytest.mark.parametrize(
    "address",
    [
        "s3://bucket/some/runs?region=us-east-1",
        "gs://anonymous@bucket/runs",
        "abfs://box@account.dfs.core.windows.net/a%20b/c",
    ],
)
def test_addresses_mean_what_they_mean_to_pyarrow(address: str, s3: S3, tmp_path: Path) -> None:
    store, folder = FileSystem.from_uri(address)
    ours, place = Mirrored(tmp_path, address).inside("study").beside("other")._store()
    assert place == f"{folder}/other"
    assert ours.type_name == store.type_name


def test_a_store_that_is_away_is_asked_again(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "_PATIENCE_S", 60.0)
    mirror, n_failures = Mirrored(tmp_path, s3.bucket()), 0
    write = mirrors.write

    def failing(*arguments: object) -> None:
        nonlocal n_failures
        if n_failures < 1:
            n_failures += 1
            raise OSError("the network is down")
        write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(mirrors, "write", failing)
    written(tmp_path, a="text")
    mirror.push("a")
    assert mirror.names() == ["a"]
    n_failures = -9
    monkeypatch.setattr(mirrors, "_PATIENCE_S", 1.0)
    with pytest.raises(OSError, match=r"cannot be used: the network is down$"):
        mirror.push("a")


def test_a_plain_folder_has_nothing_to_do(tmp_path: Path) -> None:
    written(tmp_path, a="text")
    mirror = mirror_of(tmp_path, "")
    assert mirror is UNMIRRORED.inside("x").beside("y")
    mirror.pull("a", "b")
    mirror.pull_all()
    mirror.delete("a")
    assert (tmp_path / "a").read_text() == "text"


TRIAL = Trial({"a": 1}, (1,), "grid")
SPEC = StudySpec("toy_elk", "content", "reference", "smoke")


def row(batch: int) -> Row:
    return Row(batch, 2, 1000 + batch, 1.0, {1: {"train/loss": 1.0}}, {})


def test_a_trial_goes_on_elsewhere(uri: str, tmp_path: Path) -> None:
    """Each place has a copy of its own; the one that has lost the trial learns it from the store."""
    driver, one, two = (
        StudyFolder(tmp_path / name, Mirrored(tmp_path / name, uri)).trial(TRIAL.key) for name in ("d", "one", "two")
    )
    one.begin(TRIAL)
    first = one.claim()
    one.publish(row(1), first)
    written(one.path, **{"checkpoint.pt": "at 1"})
    one.mirror.push("checkpoint.pt")
    second = two.claim()
    two.mirror.pull_all()
    assert two.checkpoint.read_text() == "at 1"
    assert two.rows() == [row(1)]
    with pytest.raises(Lost):
        one.publish(row(2), first)
    two.publish(row(2), second)
    two.end(Result(Status.FINISHED), second)
    driver.pull()
    assert (driver.trial(), driver.rows()) == (TRIAL, [row(1), row(2)])
    assert driver.result() is not None
    assert not driver.checkpoint.exists()
    driver.reopen()
    two.mirror.pull_all()
    assert sorted(path.name for path in two.path.iterdir()) == ["owner", "trial.json"]


@pytest.fixture
def places(uri: str, tmp_path: Path) -> list[Storage]:
    """The same storage, as two machines have it."""
    return [Storage(tmp_path / name, Mirrored(tmp_path / name, uri)) for name in ("one", "two")]


def test_a_study_is_one_drivers_at_a_time(places: list[Storage]) -> None:
    one, two = (place.study("s") for place in places)
    with opened(one, SPEC):
        written(one.path, **{"summary.json": "{}", "ray/state": "own"})
        keep_outputs(one, print)
        with pytest.raises(ValueError, match=r"Another process \(of .*\) is at work"), opened(two, SPEC):
            pass
    with opened(places[1].study("t"), SPEC):
        pass
    with opened(two, SPEC):  # given back: at once
        assert (two.path / "summary.json").read_text() == "{}"
        assert not (two.path / "ray").exists()
    changed = replace(SPEC, scale="quick")
    with pytest.raises(ValueError, match="scale: 'smoke' there"), opened(one, changed):
        pass


def test_a_study_whose_driver_died_is_taken_over(places: list[Storage], monkeypatch: pytest.MonkeyPatch) -> None:
    """After so long without a beat; the one who lives beats well within the usual time, also on a slow machine."""
    monkeypatch.setattr(lease, "STALE_S", 1.5)
    one, two = (place.study("s") for place in places)
    lost: list[str] = []
    assert isinstance(one.mirror, Mirrored)
    silent = lease._Lease(one, one.mirror)
    silent.take()
    with leased(two, lambda: lost.append("two")):
        silent.keep(threading.Event(), lambda: lost.append("one"))  # it was cut off only, and comes back
        assert lost == ["one"]
        silent.give_back()
        assert two.mirror.uri
        two.mirror.pull("lease")
        assert (two.path / "lease").read_text()
    assert lost == ["one"]


def test_what_there_is_in_a_store(places: list[Storage]) -> None:
    one, two = places
    with pytest.raises(ValueError, match="There is no study in "):
        latest_study(one)
    with opened(one.study("s"), SPEC):
        trial = one.study("s").trial("k")
        written(trial.path, **{"checkpoint.pt": "trained"})
        trial.mirror.push("checkpoint.pt")
    assert latest_study(two) == "s"
    assert StudySpec.read(two.study("s")) == SPEC
    found = two.checkpoint_of("k")
    assert found is not None
    assert found.read_text() == "trained"
    assert two.checkpoint_of("other") is None
    one.study("s").mirror.delete("study.json", "trials/k/checkpoint.pt", "lease")
    with pytest.raises(ValueError, match="There is no study in "):
        latest_study(two)


def test_image_sets_and_weights_come_from_a_store_once(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("PCL_DATA", uri)
    fetched: list[str] = []
    monkeypatch.setattr(mirrors, "read", lambda store, path: (fetched.append(Path(path).name), read(store, path))[1])

    def on(machine: str) -> Path:
        monkeypatch.setenv("PCL_CACHE", str(tmp_path / machine))
        sources._copied.cache_clear()
        return sources.data_folder()

    images = torch.randint(256, (4, 3, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 0, 1])
    arrays = ImageSet("cifar10h", ("a", "b"), images, torch.eye(2)[labels], labels, images[:1], labels[:1])
    folder = on("one")
    save(arrays, cache_file("cifar10h", folder))
    sources.keep_in_store(cache_file("cifar10h", folder))
    kept = keep_weights(Weights("kind", 8, "x", "y", 0.5, 1, 1, 0.1, 0, 0, {"w": torch.ones(2)}), weights_folder())
    written(tmp_path, own="elsewhere")
    sources.keep_in_store(tmp_path / "own")  # nothing of the data folder's
    assert fetched == []
    for _ in range(2):
        assert sources.resolve("cifar10h", on("two")).fingerprint == arrays.fingerprint
    assert named_weights(kept.name).digest in kept.name
    assert sorted(fetched) == sorted(["cifar10h.pt", kept.name])
    assert sources.data_place() == uri
    monkeypatch.setenv("PCL_DATA", "s3://key:secret@bucket")
    with pytest.raises(ValueError, match="must be without passwords"):
        sources.data_place()
