"""Users' own files in what is sent to a cluster, unpacked as a node does it; no cluster is needed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launch.shared.job_package import Parcel, parcel
from launch.testbed.processes import DEADLINE_S
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.opened_study import opened, space_of
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.space.search_space import load_space
from tests.support.user_parts import LOSS, written

SPACE = """
from pcl.studies.space import SearchSpace, Stage
SPACE = SearchSpace("own", "parts/hinge_loss.py:Hinge", (Stage("grid", {"loss.margin": [0.5, 1.0]}),))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a loss in parts/ and a space that names it by its relative path in spaces/."""
    found = tmp_path / "home"
    for folder in ("parts", "spaces"):
        (found / folder).mkdir(parents=True)
    written(found / "parts", LOSS)
    (found / "spaces" / "own.py").write_text(SPACE)
    monkeypatch.chdir(found)
    return found


def unpacked(sent: Parcel, folder: Path) -> Path:
    folder.mkdir()
    sent.pack(folder)
    return folder


def test_a_part_travels_by_its_relative_path(home: Path) -> None:
    command = ["launch/train.py", "--loss", "parts/hinge_loss.py:Hinge", "--show-config"]
    sent = parcel(command, "/shared", "")
    assert sent.words == ("--loss", "given/parts/hinge_loss.py:Hinge", "--show-config")
    there = unpacked(sent, home.parent / "node")
    shutil.rmtree(home / "parts")
    line = sent.command(sys.executable)
    assert '--loss "$here"/given/parts/hinge_loss.py:Hinge' in line
    os.chdir(there)
    shown = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert shown.returncode == 0, shown.stderr
    assert f"{there}/given/parts/hinge_loss.py:Hinge#" in shown.stdout


def test_a_part_from_elsewhere_travels_by_its_name(home: Path) -> None:
    sent = parcel(["launch/train.py", "--loss", LOSS], "/shared", "")
    assert sent.words == ("--loss", "given/hinge_loss.py:Hinge")
    assert sent.files == {"given/hinge_loss.py": Path(LOSS.rpartition(":")[0])}
    other = ["--task", written(home, LOSS)]
    with pytest.raises(ValueError, match="rename one of these files"):
        parcel(["launch/train.py", "--loss", LOSS, *other], "/shared", "")
    with pytest.raises(ValueError, match=r"there is no no\.py"):
        parcel(["launch/train.py", "--encoder", "no.py:Mine"], "/shared", "")


def test_a_space_travels_with_its_parts(home: Path) -> None:
    """It names them as before, wherever they were found here."""
    here = load_space("spaces/own.py")
    sent = parcel(["launch/grid.py", "--space", "spaces/own.py"], "/shared", "")
    assert sent.words[:2] == ("--space", "given/own.py")
    there = unpacked(sent, home.parent / "node")
    assert sorted(path.name for path in (there / "given").rglob("*.py")) == ["hinge_loss.py", "own.py"]
    os.chdir(there)
    shutil.rmtree(home)
    found = load_space("given/own.py")
    assert found.fingerprint() == here.fingerprint()
    assert found.loss.startswith(str(there / "given" / "parts"))


def test_a_part_above_its_space_cannot_travel(home: Path) -> None:
    (home / "spaces" / "own.py").write_text(SPACE.replace("parts/", "../parts/"))
    with pytest.raises(ValueError, match="move it next to or below the space"):
        parcel(["launch/grid.py", "--space", "spaces/own.py"], "/shared", "")


def test_a_study_keeps_the_parts_of_its_space(home: Path) -> None:
    """For a job's files are gone when it ends."""
    space = load_space("spaces/own.py")
    folder = StudyFolder(home.parent / "study")
    spec = StudySpec(str(home / "spaces" / "own.py"), space.fingerprint(), "reference", "smoke", {}, (1,))
    with opened(folder, spec):
        pass
    assert space_of(folder, spec) == spec.space
    os.chdir(home.parent)
    shutil.rmtree(home)
    assert load_space(space_of(folder, spec)).fingerprint() == space.fingerprint()
