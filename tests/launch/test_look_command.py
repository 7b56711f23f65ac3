"""`launch/look.py`: a page that needs nothing but itself, refusals, and the look at the end of a real study."""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from launch import look as command
from launch.shared.command import run
from pcl.config.run_config import RunConfig
from pcl.data.embedded import embedded
from pcl.data.images import ImageSet
from pcl.studies.inspection.findings import Findings, Pictures, look
from pcl.studies.inspection.images import of_study, source_of
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.report.outputs import figures
from pcl.studies.results.selection import Outcome
from pcl.studies.space.trial import Trial
from pcl.tasks import CifarTask
from pcl.training.run import Run
from pcl.training.trained_encoder import TrainedEncoder
from tests.support.browser import CHROMIUM, browser
from tests.support.services import Records, home, summary_of

# Numbers of a table are on one line each.
UNBROKEN = """[...document.querySelectorAll('td.number')].every(cell => {
  const text = document.createRange(); text.selectNodeContents(cell); return text.getClientRects().length === 1; })"""

SMALL = {"encoder.width": 2, "task.n_eval": 150}
FILES = {"index.html", "certain.png", "credible.png", "rejection.png", "entropy.png", "crops.png"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, dict[str, float]]]:
    """A checkpoint of two seeds, and their last report."""
    path = tmp_path_factory.mktemp("look") / "run.pt"
    training = Run(RunConfig.of({"task.data": "embedded", **SMALL}, task="images", scale="smoke"), seeds=(4, 5))
    *_, last = training
    training.save(path)
    return path, last.by_seed


def looked(*arguments: str | Path, code: int = 0) -> None:
    """The command in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["launch/look.py", *map(str, arguments), "--device", "cpu"])
        with pytest.raises(SystemExit) as end:
            run(command.main)
    assert end.value.code == code


@pytest.fixture(scope="module")
def page(trained: tuple[Path, dict[int, dict[str, float]]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a page about the second seed."""
    folder = tmp_path_factory.mktemp("page") / "deep" / "er"
    looked(trained[0], "--seed", "5", "--output", folder)
    return folder


class Seen(HTMLParser):
    """What a browser would find: tags, texts, and every address."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.addresses: list[str] = []
        self.alts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        self.addresses += [value or "" for key, value in attrs if key in ("src", "srcset", "href", "data", "action")]
        if tag == "img":
            self.alts.append(found.get("alt") or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def check_page(folder: Path) -> Seen:
    page = (folder / "index.html").read_text()
    assert not re.search(r"https?:|url\(|@import|//", re.sub(r"base64,[A-Za-z0-9+/=]+", "", page))
    seen = Seen(page)
    assert not {"script", "link", "iframe", "object", "base", "form"} & set(seen.tags)
    assert all(address.startswith("data:image/png;base64,") for address in seen.addresses)
    assert all(seen.alts)
    assert "prefers-color-scheme: dark" in page
    for heading in ("Least and most certain images", "in their 95% credible interval", "What kappa knows"):
        assert heading in seen.text
    for file in folder.glob("*.png"):
        with Image.open(file) as image:
            image.verify()
    return seen


def findings_of(path: Path, seed: int, data: ImageSet) -> Findings:
    encoder = TrainedEncoder.read(path, seed)
    pictures = Pictures(*CifarTask(encoder.task, data, [encoder.seed]).folds[0].test)
    return look(encoder.encode(pictures.images), encoder.encode(pictures.crops).kappa, pictures)


def test_the_page_shows_the_test_images_at_the_best_evaluation(
    trained: tuple[Path, dict[int, dict[str, float]]], page: Path
) -> None:
    path, by_seed = trained
    data = embedded().images
    for seed in (4, 5):
        findings, reported = findings_of(path, seed, data), by_seed[seed]
        assert findings.crop_rank_corr == reported["test/crop_rank_corr"]
        assert findings.entropy_rank_corr == reported["test/entropy_rank_corr"]
        assert findings.recall_at_1 == reported["test/recall_at_1"]
        assert findings.kappa.median().item() == reported["test/kappa_median"]
        assert TrainedEncoder.read(path, seed).best_batch == reported["best/batch"]
    assert {file.name for file in page.iterdir()} == FILES
    seen = check_page(page)
    n_shown = sum(len(e.least) + len(e.most) for e in findings.extremes)
    assert len(seen.alts) == n_shown + sum(1 + len(q.shown) for q in findings.queries) + 3
    for value in (findings.crop_rank_corr, findings.entropy_rank_corr, findings.recall_at_1, findings.curve.area):
        assert f"{value:.3f}" in seen.text
    assert "150 images of embedded: the test images of fold 0" in seen.text
    assert f"at batch {by_seed[5]['best/batch']:.0f} of 4, seed 5" in " ".join(seen.text.split())
    assert "training.kappa_limit" in seen.text


def test_a_folder_with_names_of_all_kinds(
    trained: tuple[Path, dict[int, dict[str, float]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PCL_DATA", str(tmp_path / "data"))
    random = np.random.default_rng(0)
    names = ("<script>alert(1)<", 'cat" onerror="x', "$\\frac{a$ 猫")
    for name in names:
        (tmp_path / "mine & yours" / name).mkdir(parents=True)
        for number in range(7):
            pixels = random.integers(256, size=(32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "mine & yours" / name / f"{number}.png")
    (tmp_path / "look").mkdir()
    (tmp_path / "look" / "entropy.png").touch()  # of a look before
    looked(trained[0], "--data", tmp_path / "mine & yours", "--output", tmp_path / "look")
    assert {file.name for file in (tmp_path / "look").iterdir()} == FILES - {"entropy.png"}
    seen = check_page(tmp_path / "look")
    assert all(name in seen.text for name in names)
    assert any(names[1] in alt for alt in seen.alts)
    assert "21 images of mine___yours: a set that the run did not train on" in seen.text
    assert "There is no plot of the annotators' entropy" in seen.text


def test_only_images_as_it_was_trained_on_are_encoded(trained: tuple[Path, dict[int, dict[str, float]]]) -> None:
    encoder = TrainedEncoder.read(trained[0])
    images = embedded().images.images[:3]
    torch.testing.assert_close(encoder.encode(images).mu, encoder.encode(images.float()).mu)
    assert encoder.encode(images[:0]).mu.shape[0] == encoder.encode(torch.zeros(0, 3, 32, 32)).mu.shape[0] == 0
    with pytest.raises(ValueError, match="must have numbers from 0 to 255, but none is above 1; multiply them by 255"):
        encoder.encode(images / 255)
    for wrong in (images[0], images.permute(0, 2, 3, 1), images[..., :16]):
        with pytest.raises(ValueError, match=r"must be of shape \(N, 3, 32, 32\), but got"):
            encoder.encode(wrong)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)")
def test_the_page_fits_a_telephone(page: Path, tmp_path: Path) -> None:
    with browser() as tab:
        tab.open((page / "index.html").as_uri())
        for width in (1280, 400):
            tab.screenshot(tmp_path / "seen.png", width, 900)
            assert tab.run("document.documentElement.scrollWidth") <= width
            assert tab.run(UNBROKEN)
        assert tab.run("[...document.images].every(image => image.naturalWidth)")
        assert not tab.said


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Studies and files of which none can be looked at."""
    place = tmp_path_factory.mktemp("broken")
    toy = RunConfig.of({"task.largest_cosine": 0.9, "task.smoothing": "none"}, scale="smoke")
    Run(toy, seeds=(1,)).save(place / "toy.pt")
    config = RunConfig.of({"task.data": "embedded"}, task="images", scale="smoke")
    Run(config, seeds=(1,)).save(place / "new.pt")
    whole = (place / "new.pt").read_bytes()
    (place / "cut.pt").write_bytes(whole[: len(whole) // 2])
    torch.save({"format": 1, "images": torch.zeros(1)}, place / "images.pt")
    spec = {
        "format": 1, "space": "x", "fingerprint": "x", "profile": "paper", "scale": "smoke", "tuning_seeds": [1],
        "report_seeds": [4],
    }  # fmt: skip
    summaries = {"begun": None, "lost": '{"best": null}', "torn": '{"best": {', "bare": '{"best": {"key": "0"}}'}
    for name, content in summaries.items():
        (place / name).mkdir()
        (place / name / "study.json").write_text(json.dumps(spec))
        if content is not None:
            (place / name / "summary.json").write_text(content)
    (place / "torn study").mkdir()
    (place / "torn study" / "study.json").write_text("{")
    (place / "empty").mkdir()
    return place


BAD_INPUT = {
    "nothing": (["nowhere"], "There is no study 'nowhere' in runs, and no checkpoint nowhere."),
    "no file": (["{place}/none.pt"], "no checkpoint {place}/none.pt."),
    "toy": (["{place}/toy.pt"], "toy.pt is of the task 'toy', which has no images."),
    "not evaluated": (["{place}/new.pt"], "new.pt has no evaluation with a finite val/crop_rank_corr"),
    "cut": (["{place}/cut.pt"], "cut.pt is not a readable checkpoint"),
    "a set of images": (["{place}/images.pt"], "images.pt is not a checkpoint of format 2"),
    "no study": (["{place}/empty"], "empty is neither the folder of a study nor that of a trial."),
    "too long": (["x" * 5000], "No file can have a name as long as"),
    "unreadable study": (["{place}/torn study"], "study.json is not readable; it was left as it is. Put a copy"),
    "begun": (["{place}/begun"], "`python launch/grid.py --resume begun --storage {place}` continues it"),
    "without a winner": (["{place}/lost"], "The study 'lost' has no winner yet"),
    "torn summary": (["{place}/torn"], "summary.json is not readable"),
    "no checkpoint": (["{place}/bare"], "The winner of the study 'bare' has no checkpoint"),
    "no such seed": (["{run}", "--seed", "6"], "`--seed` must be one of 4, 5, which"),
    "no such data": (["{run}", "--data", "{place}/none"], "there is no such folder or file"),
    "file as output": (["{run}", "--output", "{place}/toy.pt"], "`--output` must name a folder"),
    "output in a file": (["{run}", "--output", "{place}/toy.pt/x"], "`--output` must be in a folder"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_in_one_sentence(
    case: str, broken: Path, trained: tuple[Path, dict[int, dict[str, float]]], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = BAD_INPUT[case]
    before = sorted(broken.rglob("*"))
    looked(*(word.format(place=broken, run=trained[0]) for word in arguments), code=2)
    told = capsys.readouterr()
    assert message.format(place=broken) in told.err
    assert len(told.err.splitlines()) == 1
    assert sorted(broken.rglob("*")) == before
    assert not (trained[0].parent / "look").exists()


def test_a_winner_that_cannot_be_drawn_costs_a_line(tmp_path: Path) -> None:
    config = RunConfig.of({"task.data": "embedded"}, task="images", scale="smoke")
    trial = Trial(config.flat(), (1,), "grid")
    folder = StudyFolder(tmp_path / "s")
    folder.trial(trial.key).begin(trial)
    for damaged in (False, True):
        told: list[str] = []
        if damaged:
            folder.trial(trial.key).checkpoint.write_bytes(b"damaged")
        assert figures(folder, Outcome(trial), told.append) == []
        (line,) = told
        assert line.startswith("the winner is not drawn: ")
        assert "\n" not in line


@pytest.fixture(scope="module")
def study() -> Iterator[tuple[StudyFolder, Records]]:
    """A study of images with two trials, of another process, in real MLflow."""
    with home() as place:
        space = place.space("shapes", {"grid": {"encoder.dim": [3, 8]}}, SMALL, task="images", objective="CROPS")
        text = space.read_text().replace("'CROPS'", "Objective('val/crop_rank_corr')")
        space.write_text(text.replace("import SearchSpace", "import Objective, SearchSpace"))
        how = ("--runner", "inline", "--seeds", "1", "--no-finalize")
        place.run("--space", space, "--scale", "smoke", "--data", "embedded", *how, "--name", "s")
        yield place.study("s"), Records(place.storage, "s")


def test_a_study_of_images_leaves_a_look_at_its_winner(study: tuple[StudyFolder, Records], tmp_path: Path) -> None:
    folder, records = study
    best = summary_of(folder)["best"]
    (winner,) = [r for r in records.runs("trial") if r.data.tags["pcl.trial"] == best["key"]]
    (other,) = [r for r in records.runs("trial") if r.data.tags["pcl.trial"] != best["key"]]
    page = (folder.path / "look" / "index.html").read_text()
    for owner in (winner, records.parent()):
        assert "look" in records.artifacts(owner)
        assert records.artifact(owner, "look/index.html") == page
    assert "look" not in records.artifacts(other)
    seen = check_page(folder.path / "look")
    assert f"The study's winner: encoder.dim = {best['varied']['encoder.dim']}" in seen.text

    # In another process, the command leaves the same bytes. It knows when images are not those of the training.
    before = {file.name: file.read_bytes() for file in (folder.path / "look").iterdir()}
    assert set(before) == FILES
    shutil.rmtree(folder.path / "look")
    looked(folder.path)
    assert {file.name: file.read_bytes() for file in (folder.path / "look").iterdir()} == before
    trial = folder.trial(best["key"])
    assert source_of(str(trial.path), Storage(tmp_path)) == source_of(str(trial.checkpoint), Storage(tmp_path))
    assert source_of("s", Storage(folder.path.parent)) == of_study(folder)
    content = json.loads((trial.path / "trial.json").read_text())
    (trial.path / "trial.json").write_text(json.dumps({**content, "data": "embedded-0000000000000000"}))
    looked(folder.path, "--output", tmp_path / "look", code=2)
    assert not (tmp_path / "look").exists()
