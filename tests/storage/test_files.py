"""Files are replaced in one step or not at all."""

import os
import subprocess
from pathlib import Path

import pytest

from pcl.storage.files import clear_leftovers, replacing


def test_a_file_is_replaced_whole_and_its_folder_made(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "file"
    for text in ("old", "new"):
        with replacing(path) as unfinished:
            unfinished.write_text(text)
            assert unfinished.parent == path.parent
            assert not path.exists() or path.read_text() == "old"
        assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def interrupted() -> None:
        with replacing(path) as unfinished:
            unfinished.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(FileNotFoundError), replacing(path):
        pass  # nothing was written
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_two_that_write_at_once_both_end_with_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replacing(path) as first, replacing(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    """But neither what is being written, nor files that are none of ours."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    old, new, living, other = (
        tmp_path / name
        for name in (f".a.pt.{gone.pid}.0123abcd.tmp", f".b.pt.{gone.pid}.0123abcd.tmp",
                     f".c.pt.{os.getpid()}.0123abcd.tmp", ".d.tmp")
    )  # fmt: skip
    for path in (old, new, living, other):
        path.touch()
    for path in (old, living, other):
        os.utime(path, (0, 0))
    clear_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted((new, living, other))
    clear_leftovers(tmp_path / "nowhere")
