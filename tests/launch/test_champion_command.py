"""`launch/champion.py`: a study's winner registered, told in a few lines, and refusals in one."""

import shutil
import sys
from pathlib import Path

import pytest

import pcl
from launch.champion import main
from launch.verify import main as verify
from pcl.studies.tracking.store import default_uri
from pcl.studies.tracking.tags import Tag
from tests.support.commands import called
from tests.support.models import TOY, searched
from tests.support.services import Records


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> pcl.Study:
    return searched(TOY, tmp_path_factory.mktemp("runs"), "toy-study")


def test_a_winner_is_registered_once(study: pcl.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("toy-study", "--storage", str(study.path.parent))
    first = called("launch/champion.py", main, *words)
    assert (first.returncode, first.stderr) == (0, "")
    assert f"seed 1 of 1, 2 ({study.best.folder.checkpoint})" in first.stdout
    assert "\na constant kappa would be closer to the truth\n" in first.stdout  # after a few batches
    assert f"--resume toy-study --finalize --storage {study.path.parent}`" in first.stdout
    assert "toys version 1: registered, alias champion" in first.stdout
    *_, served = first.stdout.splitlines()  # tests/service/test_serving.py runs it
    assert f"MLFLOW_TRACKING_URI={default_uri(study.path.parent)} " in served
    assert served.endswith("mlflow models serve -m models:/toys@champion --env-manager local -p 5001")
    folder = Path(sys.executable).parent
    for path, is_active in ((f"{folder}:/bin", True), ("/bin", False)):
        monkeypatch.setenv("PATH", path)
        again = called("launch/champion.py", main, str(study.path), "--storage", str(study.path.parent))
        assert "toys version 1: unchanged" in again.stdout
        assert (f'serve it: PATH={folder}:"$PATH" ' in again.stdout) != is_active
    before = Records(study.path.parent, "toy-study").parent().data.tags
    searched(TOY, study.path.parent, "toy-study", finalize=True)  # goes on, and trains the winner on the report seeds
    after = Records(study.path.parent, "toy-study").parent().data.tags
    assert after[Tag.MODEL] == before[Tag.MODEL] == "toys/1"
    third = called("launch/champion.py", main, *words)
    assert "seed 4 of 4, 5" in third.stdout
    assert "--finalize" not in third.stdout
    assert "toys version 2: registered, alias champion" in third.stdout
    sound = called("launch/verify.py", verify, *words)
    assert sound.returncode == 0, sound.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nothing",), "There is no study 'nothing'"),
        (("toy-study", "--alias", "v2"), "An alias must be"),
        (("toy-study", "--name", "a/b"), "A model's name must be"),
        (("toy-study", "--seed", "9"), "`--seed` must be one of"),
        (("toy-study", "--tracking-uri", "ftp://a"), "The tracking URI must be"),
    ],
)
def test_what_is_not_possible_is_said_in_one_sentence(study: pcl.Study, words: tuple[str, ...], told: str) -> None:
    found = called("launch/champion.py", main, *words, "--storage", str(study.path.parent))
    assert found.returncode == 2
    assert told in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_a_study_without_a_winner_and_one_without_a_checkpoint(study: pcl.Study, tmp_path: Path) -> None:
    none = searched(TOY, tmp_path / "runs", "early", time_budget_s=1e-9)
    found = called("launch/champion.py", main, none.name, "--storage", str(tmp_path / "runs"))
    assert found.returncode == 2
    assert "has no winner" in found.stderr
    shutil.copytree(study.path.parent, tmp_path / "copy")
    for path in (tmp_path / "copy").rglob("checkpoint.pt"):
        path.unlink()
    found = called("launch/champion.py", main, study.name, "--storage", str(tmp_path / "copy"))
    assert found.returncode == 2
    assert "There is no checkpoint" in found.stderr
