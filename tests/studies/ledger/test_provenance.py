"""The hash of the code's files says which code has run, whatever commit its folder claims."""

import shutil
from pathlib import Path

import pytest

from launch.shared.job_package import parcel
from pcl.storage.installation import INSIDE, PACKAGE
from pcl.studies.ledger import provenance
from pcl.studies.ledger.provenance import COMMIT_FILE, commit, source_hash


def test_a_newer_tree_beside_an_older_commit_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_ROOT", tmp_path)
    (tmp_path / COMMIT_FILE).write_text("c0ffee\n")
    found = []
    for name in ("sent", "sent later"):
        package = tmp_path / name
        shutil.copytree(PACKAGE / "storage", package, ignore=shutil.ignore_patterns("__pycache__"))
        if name == "sent later":
            (package / "files.py").write_text((package / "files.py").read_text() + "\n")
        found.append((commit(), source_hash(package)))
    assert found[0][0] == found[1][0] == "c0ffee"
    assert found[0][1] == source_hash(PACKAGE / "storage") != found[1][1]


def test_names_count_and_what_is_no_code_does_not(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.py").write_text("1")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    (tmp_path / "two" / "notes.txt").write_text("2")
    (tmp_path / "two" / INSIDE.name).mkdir()  # as in an installed package
    (tmp_path / "two" / INSIDE.name / "a.py").write_text("2")
    shutil.copytree(tmp_path / "one", tmp_path / "three")
    (tmp_path / "three" / "a.py").rename(tmp_path / "three" / "b.py")
    one, two, three = (source_hash(tmp_path / name) for name in ("one", "two", "three"))
    assert one == two != three


def test_a_job_has_the_hash_of_the_code_that_sent_it(tmp_path: Path) -> None:
    parcel(["grid", "--space", "toy_elk"], "/shared", "").pack(tmp_path)
    assert source_hash(tmp_path / "pcl") == source_hash()
