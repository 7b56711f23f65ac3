"""The distribution: what it puts beside other packages, and its one command `pcl`."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from launch.testbed.processes import ROOT
from pcl.storage.installation import command, installed_folder

EXPECTED_SECONDS = 45


def answer(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Return the answer of a command."""
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


def test_one_command_has_all_others() -> None:
    """It says what each is for; those of a checkout alone are left out."""
    told = answer("-m", "pcl", "--help")
    assert told.returncode == 0
    names = re.findall(r"^  (\w+) +[A-Z].*", told.stdout, re.M)
    assert set(names) == {path.stem for path in installed_folder("launch").glob("[a-z]*.py")} - {"docs"}


def test_a_command_names_itself_as_it_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["launch/grid.py"])
    assert command("grid") == "python launch/grid.py"
    monkeypatch.setattr(sys, "argv", ["pcl grid"])
    assert command("grid") == "pcl grid"
    refused = answer("-m", "pcl", "grid", "--space", "toy_ekl")
    assert refused.returncode == 2
    assert refused.stderr.startswith("pcl grid: Unknown search space 'toy_ekl'")
    assert len(refused.stderr.splitlines()) == 1


def test_an_unknown_command_is_refused_with_the_nearest() -> None:
    refused = answer("-m", "pcl", "gird")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.endswith("Did you mean 'grid'?\n")


@pytest.mark.parametrize(
    ("begun", "ways_on"),
    [
        ("pcl gri", {"grid "}),
        ("pcl grid --space toy_m", {"toy_mcinfonce "}),
        ("pcl ablate --fid", {"--fidelity "}),
        ("pcl reproduce --table bench", {"bench_cifar", "bench_results"}),
    ],
)
def test_a_shell_is_told_how_a_command_line_may_go_on(begun: str, ways_on: set[str], tmp_path: Path) -> None:
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": begun, "COMP_POINT": str(len(begun)), "_ARGCOMPLETE_IFS": "\n"}
    shell = 'exec 8> "$1"; shift; exec "$@"'  # where it listens
    words = ["bash", "-c", shell, "bash", str(tmp_path / "said"), sys.executable, "-m", "pcl"]
    subprocess.run(words, env={**os.environ, **asked}, check=True, capture_output=True)
    assert set((tmp_path / "said").read_text().split("\n")) == ways_on


@pytest.mark.slow
def test_a_wheel_has_one_name_and_works_without_the_checkout(tmp_path: Path) -> None:
    """`launch`, `dashboards` and `search_spaces` are inside of it, with what they read."""
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for file in files:
        (tmp_path / "copy" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, tmp_path / "copy" / file)
    words = ("-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path))
    built = answer(*words, str(tmp_path / "copy"))
    assert built.returncode == 0, built.stderr
    place = tmp_path / "place"
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(place)
    assert {path.name for path in place.iterdir() if path.suffix != ".dist-info"} == {"pcl"}
    inside = place / "pcl" / "installed"
    for name in (
        "search_spaces/ablations/mc_samples.py",
        "search_spaces/hard_labels/cifar_mcinfonce_hard.py",
        "dashboards/board/static",
        "dashboards/results/reference-paper",
    ):
        assert (inside / name).exists(), name
    assert len(list((place / "pcl" / "data" / "authors").glob("*.npy"))) == 2
    run = f"import sys; sys.path[0] = {str(place)!r}; sys.argv[0] = 'pcl'; import pcl.__main__ as it; it.main()"
    listed = answer("-c", run, "grid", "--list", cwd=tmp_path)
    assert {"toy_mcinfonce", "cifar_mcinfonce_hard"} <= set(listed.stdout.split()), listed.stderr
    words = ("train", "--scale", "smoke", "--checkpoint", str(tmp_path / "run.pt"))
    trained = answer("-c", run, *words, cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    searched = answer("-c", run, "grid", "--space", "toy_elk", "--scale", "smoke", "--runner", "inline", cwd=tmp_path)
    assert searched.returncode == 0, searched.stderr
    shown = answer("-c", run, "board", "--export", str(tmp_path / "site"), cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    refused = answer("-c", run, "grid", "--resume", "no_such_study", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("pcl grid: ")
    pack = (
        f"import sys; sys.path[:1] = [{str(place)!r}, {str(inside)!r}]; from pathlib import Path; "
        "from launch.shared.job_package import parcel; parcel(['grid', '--list'], None, '').pack(Path('sent'))"
    )
    sent = answer("-c", pack, cwd=tmp_path)
    assert sent.returncode == 0, sent.stderr
    assert {"pcl", "launch", "dashboards", "search_spaces"} <= {path.name for path in (tmp_path / "sent").iterdir()}


def test_without_cuda_exactly_its_packages_are_left_out() -> None:
    """They are those that the lock has for Linux on x86_64 alone."""
    plan = subprocess.run(
        ["make", "--dry-run", "--always-make", "CUDA=no", ".venv/.installed"],
        cwd=ROOT, env={**os.environ, "MAKEFLAGS": ""}, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (choice,) = (line.partition(" > ")[0] for line in plan.splitlines() if line.startswith("grep "))
    chosen = subprocess.run(["bash", "-c", choice], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lock = (ROOT / "requirements.lock").read_text().splitlines()
    assert set(lock) - set(chosen.splitlines()) == {line for line in lock if "x86_64" in line}
    assert "torch==2.10.0" in chosen.splitlines()
    assert re.search(r"pip install .* -r \.venv/chosen\.lock", plan)


def test_every_pinned_package_takes_the_oldest_python_that_we_take() -> None:
    """Debian 12 has 3.11.2, where a package that needs 3.11.5 ends the installation."""
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = ours.removeprefix(">=") + ".0"
    refusing, seen = [], 0
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        pinned = Requirement(line)
        name = pinned.name
        try:
            found = metadata(name).json
        except PackageNotFoundError:  # CUDA's, on a machine without
            continue
        assert str(found["version"]) in pinned.specifier, f"{name} is not the lock's"
        wanted = str(found.get("requires_python", ""))
        seen += 1
        refusing += [] if oldest in SpecifierSet(wanted) else [f"{name} wants Python {wanted}"]
    assert seen > 100
    assert refusing == []
