"""Files are replaced in one step or not at all."""

from pathlib import Path

import pytest

from pcl.files import replacing


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
