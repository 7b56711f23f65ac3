"""`--set lr=1e-3` and `--set lr=0.001` are one study, one warm start, one reproduction folder, one trial."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from launch.ablate import _parser as ablate_parser
from launch.ablate import request_of as ablation_request
from launch.grid import _parser as grid_parser
from launch.grid import request_of as grid_request
from launch.reproduction.cells import Setting, studies_of
from launch.shared.command import settings
from launch.studies.ablate_command import asked_ablation
from launch.studies.grid_study import asked_study
from launch.studies.study_flags import config_request
from pcl.config.canonical_settings import canonical_settings
from pcl.config.run_config import RunConfig
from pcl.losses import LOSSES
from pcl.studies.ledger.folders import Result, Status, StudyFolder
from pcl.studies.ledger.opened_study import opened
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.session.new_study import check_warm_start
from pcl.studies.session.strategies import TrialList
from pcl.studies.session.study_session import Study
from pcl.studies.space.declarations import Shelf
from pcl.studies.space.search_space import load_space
from pcl.studies.space.trial import Trial
from tests.support.user_parts import ENCODER, LOSS, TASK

ONE = ["training.lr=1e-3", "loss.learn_kappa_pos=true", "training.n_batches=1_000", "training.phases=mu,kappa:1.0"]
TWO = ["training.lr=0.001", "loss.learn_kappa_pos = True", "training.n_batches=1000", "training.phases=mu kappa"]
SAME = {
    "training.lr": 0.001, "loss.learn_kappa_pos": True, "training.n_batches": 1000, "training.phases": "mu kappa",
}  # fmt: skip


def spec_of(given: list[str]) -> StudySpec:
    space = load_space("toy_mcinfonce")
    return StudySpec(space.name, space.fingerprint(), "paper", "smoke", {**settings(given)})


def as_before(folder: StudyFolder, spec: StudySpec, given: list[str]) -> None:
    """Write study.json as versions did that recorded the text of `--set`."""
    folder.path.mkdir(parents=True)
    content = {"format": 1, **asdict(spec), "overrides": settings(given)}
    (folder.path / "study.json").write_text(json.dumps(content))


def test_a_path_has_one_type_in_all_configurations_that_have_it() -> None:
    kinds: dict[str, set[type]] = {}
    for config in (RunConfig.of(loss=loss, task=task) for loss in LOSSES for task in ("toy", "images")):
        for path, kind in config.paths().items():
            kinds.setdefault(path, set()).add(kind)
    assert [path for path, found in kinds.items() if len(found) > 1] == []


def test_spellings_become_one_value() -> None:
    assert canonical_settings(settings(ONE)) == canonical_settings(settings(TWO)) == SAME
    found = canonical_settings({"loss.kappa_pos": 16, "task.data": "007", "encoder.width": "8", "task.family": "vmf"})
    assert json.dumps(found) == '{"loss.kappa_pos": 16.0, "task.data": "007", "encoder.width": 8, "task.family": "vmf"}'


def test_what_is_wrong_is_left_to_those_who_say_why() -> None:
    wrong = {"loss.n_sample": "1", "loss.n_samples": "many", "loss.learn_kappa_pos": "perhaps"}
    assert canonical_settings(wrong) == wrong


def test_one_study_and_one_trial(tmp_path: Path) -> None:
    one, two = spec_of(ONE), spec_of(TWO)
    assert one == two
    assert one.difference(two) == ""
    space = load_space("toy_mcinfonce")
    one, two = (spec_of([given[0], given[2]]) for given in (ONE, TWO))  # what the space does not vary
    assert [t.key for t in one.trials(space, 0, {})] == [t.key for t in two.trials(space, 0, {})]
    folder = StudyFolder(tmp_path / "s")
    with opened(folder, one):
        pass
    with opened(folder, two):
        assert StudySpec.read(folder) == two


def test_a_setting_of_a_users_own_part_has_one_spelling(tmp_path: Path) -> None:
    file, parts = tmp_path / "own.py", {"loss": LOSS, "task": TASK, "encoder": ENCODER}
    axes = {"training.lr": (0.1, 0.2)}
    file.write_text(
        "from pcl import Ablation, SearchSpace, Stage, Variant\n"
        f"SPACE = SearchSpace('own', stages=(Stage('grid', {axes!r}),), **{parts!r})\n"
        "VARIANTS = {'a': Variant(), 'b': Variant({'training.lr': 0.2})}\n"
        f"ABLATION = Ablation('own', 'How?', 'lr', 'a', VARIANTS, **{parts!r})\n"
    )
    one = ["task.share=0.50", "loss.margin=1", "encoder.dim=0_4", "training.n_batches=1_000"]
    two = ["task.share=5e-1", "loss.margin=1.0", "encoder.dim=4", "training.n_batches=1000"]
    same = {"task.share": 0.5, "loss.margin": 1.0, "encoder.dim": 4, "training.n_batches": 1000}
    for given in (one, two):
        sets = [word for text in given for word in ("--set", text)]
        words = ["--scale", "smoke", "--storage", str(tmp_path), *sets]
        search = grid_request(grid_parser().parse_args(["--space", str(file), *words]))
        ablation = ablation_request(ablate_parser().parse_args(["--ablation", str(file), *words]))
        for asked in (asked_study(search), asked_ablation(ablation)):
            assert json.dumps(asked.spec.overrides) == json.dumps(same)


def test_a_study_that_recorded_another_spelling_goes_on(tmp_path: Path) -> None:
    folder, spec = StudyFolder(tmp_path / "old"), spec_of(TWO)
    as_before(folder, spec, ONE)
    assert json.loads((folder.path / "study.json").read_text())["overrides"]["training.lr"] == "1e-3"
    assert StudySpec.read(folder) == spec
    with opened(folder, spec):
        pass
    other = spec_of([*TWO[1:], "training.lr=0.002"])
    with pytest.raises(ValueError, match="overrides"), opened(folder, other):
        pass


def test_a_warm_start_takes_it(tmp_path: Path) -> None:
    folder, spec = StudyFolder(tmp_path / "old"), spec_of(TWO)
    as_before(folder, spec, ONE)
    trial = Trial(RunConfig.of(scale="smoke").flat(), (1,), "grid")
    part = folder.trial(trial.key)
    part.begin(trial)
    part.end(Result(Status.FINISHED), part.claim())
    check_warm_start(spec, folder)


def test_a_reproduction_has_one_folder_also_where_an_older_version_named_it(tmp_path: Path) -> None:
    mine, others = Storage(tmp_path / "mine"), Storage(tmp_path / "others")
    trial = Trial(RunConfig.of(scale="smoke").flat(), (4,), "reproduction")

    def study(given: list[str], storage: Storage) -> Study[TrialList]:
        (found,) = studies_of([trial], Setting("paper", "smoke", (4,), {**settings(given)}), storage)
        return found

    spec = study(ONE, mine).spec
    as_before(mine.study("reproduce_toy-paper-smoke-0123abcd"), spec, ["training.lr=7"])
    as_before(mine.study("reproduce_toy-paper-smoke-89abcdef"), spec, ONE)
    for given in (ONE, TWO):
        assert study(given, mine).folder.name == "reproduce_toy-paper-smoke-89abcdef"
    names = [study(TWO, others).folder.name, study([*TWO, "training.batch_size=7"], mine).folder.name]
    for name in names:
        assert name not in ("reproduce_toy-paper-smoke-0123abcd", "reproduce_toy-paper-smoke-89abcdef")
    folder = study(TWO, others).folder
    with opened(folder, spec):
        assert study(ONE, others).folder.name == folder.name
    assert study(ONE, Storage(tmp_path / "a third")).folder.name != folder.name  # on one MLflow server


def test_only_a_file_that_is_or_names_a_users_own_may_have_further_settings(tmp_path: Path) -> None:
    arguments = grid_parser().parse_args(["--set", "loss.margin=0.5", "--space", "toy_elk"])
    for request in (lambda: grid_request(arguments), lambda: config_request(arguments)):
        with pytest.raises(ValueError, match=r"Unknown path 'loss.margin'"):
            request()
    place = tmp_path / "shelf"
    place.mkdir()
    (place / "own.py").write_text(f"LOSS = {LOSS!r}")
    for folder in (place, tmp_path):
        (folder / "elsewhere.py").write_text("from mine import SPACE")  # its part may be named there
    shelf = Shelf(str(place), "search space", "SPACE")
    for name in ("own", str(tmp_path / "elsewhere.py")):
        assert config_request(arguments, shelf, name).settings == {"loss.margin": "0.5"}
    for name in ("elsewhere", str(place / "elsewhere.py")):
        with pytest.raises(ValueError, match="Unknown path"):
            config_request(arguments, shelf, name)
    with pytest.raises(ValueError, match="There is no search space file"):
        config_request(arguments, shelf, str(tmp_path / "missing.py"))
