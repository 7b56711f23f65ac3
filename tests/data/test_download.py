from collections.abc import Iterator
from pathlib import Path

import pytest

from pcl.data import Unreachable
from pcl.data.download import Remote, download
from pcl.data.sources import silent
from tests.support.file_server import CONTENT, FileServer, serving


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as running:
        yield running


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_download(tmp_path: Path, server: FileServer) -> None:
    told: list[tuple[str, int, int]] = []
    path = download(server.remote(), tmp_path / "deep", lambda *values: told.append(values))
    assert path.read_bytes() == CONTENT
    assert names(path.parent) == ["file.bin"]
    assert told[-1] == ("file.bin", len(CONTENT), len(CONTENT))
    assert len(told) > 3
    download(server.remote(), path.parent, silent)
    assert len(server.asked) == 1
    path.write_bytes(CONTENT[:100])
    assert download(server.remote(), path.parent, silent).read_bytes() == CONTENT


@pytest.mark.parametrize("has_range", [True, False])
def test_download_goes_on_after_cuts(tmp_path: Path, server: FileServer, has_range: bool) -> None:
    server.has_range = has_range
    server.cuts = [400_000, 300_000]
    assert download(server.remote(), tmp_path, silent).read_bytes() == CONTENT
    assert server.asked[0] == ""
    assert server.asked[1] == "bytes=400000-"
    assert server.asked[2] == ("bytes=700000-" if has_range else "bytes=300000-")
    assert names(tmp_path) == ["file.bin"]


def test_later_call_goes_on_from_the_part(tmp_path: Path, server: FileServer) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:1_000_000])
    told: list[int] = []
    assert download(server.remote(), tmp_path, lambda _, done, __: told.append(done)).read_bytes() == CONTENT
    assert server.asked == ["bytes=1000000-"]
    assert told[0] > 1_000_000


@pytest.mark.parametrize("part", [CONTENT, CONTENT + b"more", b"x" * 1000])
def test_whole_or_wrong_part(tmp_path: Path, server: FileServer, part: bytes) -> None:
    (tmp_path / "file.bin.part").write_bytes(part)
    assert download(server.remote(), tmp_path, silent).read_bytes() == CONTENT
    assert names(tmp_path) == ["file.bin"]


def test_wrong_checksum_leaves_nothing(tmp_path: Path, server: FileServer) -> None:
    with pytest.raises(ValueError, match=r"must have the sha256 0{64}, but the download does not; it was deleted"):
        download(server.remote(digest="0" * 64), tmp_path, silent)
    assert names(tmp_path) == []


def test_server_that_always_cuts(tmp_path: Path, server: FileServer) -> None:
    server.cuts = [1000] * 10
    with pytest.raises(Unreachable, match=r"was cut 10 times; the same command continues"):
        download(server.remote(), tmp_path, silent)
    assert names(tmp_path) == ["file.bin.part"]
    assert (tmp_path / "file.bin.part").read_bytes() == CONTENT[:10_000]
    server.cuts = [0]
    with pytest.raises(Unreachable, match="cut the connection"):
        download(server.remote(), tmp_path, silent)


def test_no_server_and_no_file(tmp_path: Path, server: FileServer) -> None:
    remote = server.remote()
    server.files.clear()
    with pytest.raises(Unreachable, match=r"127.0.0.1 answered 404 \(Not Found\) for http"):
        download(remote, tmp_path, silent)
    with pytest.raises(Unreachable, match=r"127.0.0.1 cannot be reached \(Connection refused\)"):
        download(Remote("http://127.0.0.1:9/x", "x", "sha256", ""), tmp_path, silent)
    assert names(tmp_path) == []
