"""A study's winner in MLflow's registry: what is logged, once, and that it answers as the training does."""

import dataclasses
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from mlflow import MlflowClient

import pcl
from pcl.prediction.packed_encoder import PackedEncoder
from pcl.prediction.pictures import pictures
from pcl.prediction.posteriors import Reference
from pcl.studies.inspection.images import of_study
from pcl.studies.ledger.opened_study import opened
from pcl.studies.registry import registration
from pcl.studies.registry.package import digest_of, requirements_of
from pcl.studies.space.numerics_version import MATHS_VERSION
from pcl.studies.tracking.store import Store, default_uri
from pcl.studies.tracking.tags import Tag
from pcl.training.trained_encoder import TrainedEncoder
from tests.prediction.test_packed_encoder import TOY as CONFIG
from tests.prediction.test_packed_encoder import packed
from tests.support.models import PICTURES, SHAPES, TOY, loaded, png, searched, text


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def toys(storage: Path) -> pcl.Study:
    return searched(TOY, storage, "toy-study")


@pytest.fixture(scope="module")
def shapes(storage: Path) -> pcl.Study:
    return searched(SHAPES, storage, "shapes", finalize=True)


@pytest.fixture(scope="module")
def client(storage: Path) -> MlflowClient:
    return MlflowClient(default_uri(storage), registry_uri=default_uri(storage))


@pytest.fixture(scope="module")
def made(shapes: pcl.Study) -> registration.Registered:
    return shapes.register()


def registered(client: MlflowClient, name: str) -> Any:
    return loaded(client.get_model_version(name, "1").source)


def parent_tags(client: MlflowClient, study: str) -> dict[str, str]:
    experiments = [found.experiment_id for found in client.search_experiments()]
    (run,) = client.search_runs(experiments, f"tags.`{Tag.STUDY}` = '{study}' and tags.`{Tag.KIND}` = 'study'")
    return dict(run.data.tags)


def test_a_winner_of_images_becomes_a_version_with_an_alias(
    shapes: pcl.Study, made: registration.Registered, client: MlflowClient
) -> None:
    assert (made.name, made.version, made.alias, made.is_new, made.notes) == ("shapes", 1, "champion", True, ())
    version = client.get_model_version_by_alias("shapes", "champion")
    assert int(version.version) == 1
    assert version.tags[Tag.STUDY] == "shapes"
    assert version.tags[Tag.DATA] == shapes.spec.data
    tags = parent_tags(client, "shapes")
    assert (tags[Tag.MODEL], tags[Tag.MODEL_TRIAL]) == ("shapes/1", shapes.best.key)
    logged = client.get_logged_model(Path(version.source).parent.name)
    assert logged.params == {path: str(value) for path, value in shapes.best.config.flat().items()}
    run = client.get_run(logged.source_run_id)
    assert logged.model_id in [output.model_id for output in run.outputs.model_outputs]
    assert "| `val/crop_rank_corr` |" in version.description
    assert "resized to 32 x 32" in version.description


def test_the_report_seeds_are_taken_and_their_metrics_have_intervals(
    shapes: pcl.Study, made: registration.Registered, client: MlflowClient
) -> None:
    champion = shapes.champion
    assert champion.is_reported
    assert champion.taken.trial.seeds == (4, 5)
    assert made.seed == 4
    assert of_study(shapes.folder).checkpoint == champion.checkpoint  # what apply.py and look.py take
    metadata = registered(client, "shapes").metadata.metadata
    assert metadata["config"] == shapes.best.config.flat()
    assert (metadata["trial"], metadata["seed"], metadata["is_report"]) == (champion.key, 4, True)
    assert (metadata["data"], metadata["numerics"]) == (shapes.spec.data, MATHS_VERSION)
    found = metadata["metrics"]["val/crop_rank_corr"]
    values = champion.taken.values("val/crop_rank_corr")
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["n"] == 2
    assert found["low"] <= found["mean"] <= found["high"]


def test_answers_are_those_of_training(shapes: pcl.Study, made: registration.Registered, client: MlflowClient) -> None:
    model = registered(client, "shapes")
    trained = TrainedEncoder.read(shapes.champion.checkpoint, 4)
    expected = trained.encode(pictures(PICTURES))
    for table in (
        pd.DataFrame({"image": [png(pixels) for pixels in PICTURES]}),
        pd.DataFrame({"pixels": PICTURES}),
        pd.DataFrame({"image": [text(png(pixels)) for pixels in PICTURES]}),
        {"pixels": [pixels.tolist() for pixels in PICTURES]},
    ):
        answer = model.predict(table)
        assert np.allclose(np.array(answer["mu"].tolist()), expected.mu.numpy(), atol=1e-5)
        assert np.allclose(answer["kappa"], expected.kappa.numpy(), rtol=1e-5)
        angle = expected.credible_threshold(0.95).acos().numpy()
        assert np.allclose(answer["credible_angle_95"], angle, atol=1e-3)
        assert set(answer["neighbour_label"]) <= set(PackedEncoder.load(data_of(client)).reference.classes)
        is_near = answer["neighbour_angle"] <= answer["credible_angle_95"]
        assert answer["neighbour_inside_95"].tolist() == is_near.tolist()
        assert model.metadata.signature.outputs.input_names() == list(answer.columns)
    assert len(model.predict(model.input_example)) == 2
    assert [spec.name for spec in model.metadata.signature.inputs.inputs] == ["image", "pixels"]


def data_of(client: MlflowClient, name: str = "shapes") -> Path:
    return Path(client.get_model_version(name, "1").source.removeprefix("file://")) / "data/encoder"


def test_the_reference_set_is_the_training_part_of_the_fold(
    shapes: pcl.Study, made: registration.Registered, client: MlflowClient
) -> None:
    model = PackedEncoder.load(data_of(client))
    fold = model.config.task.build([model.seed]).folds[0]
    assert model.reference is not None
    assert len(model.reference.mu) == len(fold.images) <= 5_000
    assert torch.equal(model.reference.labels, fold.shares.argmax(1))
    some = model.predict_images(list(fold.images[:5].permute(0, 2, 3, 1).numpy()))
    assert some.neighbours is not None
    assert some.neighbours.angle.max() < 1e-3


def test_the_exported_program_equals_the_encoder(
    made: registration.Registered, toys: pcl.Study, client: MlflowClient
) -> None:
    toys.register()
    for name, scale in (("shapes", 255), ("toys", 1)):
        model = PackedEncoder.load(data_of(client, name))
        with warnings.catch_warnings(action="ignore"):  # torch's, about how it reads tensors
            program = torch.export.load(data_of(client, name) / "encoder.pt2").module()
        for n in (1, 2, 7):
            x = torch.rand(n, *model.input_shape, generator=torch.Generator().manual_seed(n)) * scale
            mu, kappa = program(x)
            expected = model.encode(x)
            assert torch.allclose(mu, expected.mu, atol=1e-5)
            assert torch.allclose(kappa, expected.kappa, rtol=1e-5)


def test_a_model_of_numbers(toys: pcl.Study, client: MlflowClient) -> None:
    made = toys.register("my.toys", "staging")
    assert (made.name, made.version, made.uri) == ("my.toys", 1, "models:/my.toys@staging")
    assert not toys.champion.is_reported
    model = registered(client, "my.toys")
    x = np.linspace(-1, 1, 12).reshape(4, 3)
    answer = model.predict(x)
    expected = toys.best.encoder()(torch.from_numpy(x).float())
    assert list(answer.columns) == ["mu", "kappa", "credible_angle_95"]
    assert np.allclose(answer["kappa"], expected.kappa.numpy(), rtol=1e-5)
    assert np.allclose(np.array(answer["mu"].tolist()), expected.mu.numpy(), atol=1e-5)
    names = {line.split("==")[0] for line in requirements_of(PackedEncoder.load(data_of(client, "my.toys")))}
    assert names == {"mlflow", "torch", "numpy", "scipy", "pandas", "filelock"}


def test_a_second_call_makes_no_second_version_unless_something_changed(
    shapes: pcl.Study, made: registration.Registered, client: MlflowClient
) -> None:
    again = shapes.register()
    assert (again.version, again.is_new) == (1, False)
    assert len(client.search_model_versions("name = 'shapes'")) == 1
    other = shapes.register(seed=5)
    assert (other.version, other.is_new, other.seed) == (2, True, 5)
    assert client.get_model_version_by_alias("shapes", "champion").version == 2
    back = shapes.register()
    assert (back.version, back.is_new) == (1, False)
    assert client.get_model_version_by_alias("shapes", "champion").version == 1
    assert parent_tags(client, "shapes")[Tag.MODEL] == "shapes/1"


def test_the_digest_covers_weights_settings_references_code_and_requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    model, pins = packed(CONFIG), ["torch==1"]
    first = digest_of(model, pins, "set-1")
    assert digest_of(packed(CONFIG), pins, "set-1") == first
    weights = {**model.weights, "kappa_head.shift": model.weights["kappa_head.shift"] + 1}
    known = Reference(torch.eye(3), torch.tensor([0, 1, 0]), ("a", "b"))
    others = [
        digest_of(dataclasses.replace(model, weights=weights), pins, "set-1"),
        digest_of(dataclasses.replace(model, seed=9), pins, "set-1"),
        digest_of(dataclasses.replace(model, reference=known), pins, "set-1"),
        digest_of(
            dataclasses.replace(model, config=pcl.RunConfig.of({"training.lr": 0.5}, scale="smoke")), pins, "set-1"
        ),
        digest_of(model, ["torch==2"], "set-1"),
        digest_of(dataclasses.replace(model, reference=known), pins, "set-2"),
    ]
    monkeypatch.setattr("pcl.studies.registry.package._ROOMS", ("prediction",))
    others.append(digest_of(model, pins, "set-1"))
    assert len({first, *others}) == 8
    moved = Reference(torch.eye(3) + 1e-7, known.labels, known.classes)  # as another processor rounds
    monkeypatch.undo()
    assert digest_of(dataclasses.replace(model, reference=moved), pins, "set-1") == others[2]


def test_a_registration_that_died_leaves_one_model(
    storage: Path, toys: pcl.Study, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = client.get_experiment_by_name("pcl/toys").experiment_id
    before = {found.model_id for found in client.search_logged_models([experiment])}

    def fail(*_: object) -> None:
        raise OSError("no space left")

    for step in ("save_files", "_new_version"):
        with monkeypatch.context() as patch:
            patch.setattr(registration, step, fail)
            with pytest.raises(OSError, match="no space"):
                toys.register("late", seed=2)
    assert client.search_model_versions("name = 'late'") == []
    made = toys.register("late", seed=2)
    assert (made.version, made.is_new) == (1, True)
    after = {found.model_id for found in client.search_logged_models([experiment])}
    assert len(after - before) == 1


def test_a_moved_folder_of_studies_has_its_models(toys: pcl.Study, storage: Path, tmp_path: Path) -> None:
    version = toys.register("moved").version
    shutil.copytree(storage, tmp_path / "elsewhere")
    store = Store(default_uri(tmp_path / "elsewhere"))
    found = store.call(lambda there: there.get_model_version("moved", str(version)))
    place = store.call(lambda there: there.get_model_version_download_uri("moved", str(version)))
    logged = Path(found.source).parent.name  # ID/artifacts
    known = store.call(lambda there: there.get_logged_model(logged)).artifact_location
    for address in (found.source, place, known):
        assert address.startswith((tmp_path / "elsewhere").as_uri())
    assert len(loaded(place).predict(np.zeros((1, 3)))) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"name": "a/b"}, "model's name must be"),
        ({"name": ".."}, "model's name must be"),
        ({"alias": "v1"}, "neither 'latest' nor such as v1"),
        ({"alias": "Latest"}, "neither 'latest'"),
        ({"alias": ""}, "alias must be"),
        ({"seed": 3}, "must be one of 1, 2"),
        ({"tracking": "sqlite:///{folder}/other.db"}, "has no run of the study 'toy-study'"),
    ],
)
def test_what_cannot_be_registered(toys: pcl.Study, arguments: dict[str, Any], told: str, tmp_path: Path) -> None:
    given = {key: value.format(folder=tmp_path) if key == "tracking" else value for key, value in arguments.items()}
    with pytest.raises(ValueError, match=told):
        toys.register(**given)


def test_a_study_that_runs_or_has_not_ended_is_refused(toys: pcl.Study, tmp_path: Path) -> None:
    with opened(toys.folder, toys.spec), pytest.raises(ValueError, match="Another process is at work"):
        toys.register()
    shutil.copytree(toys.path, tmp_path / "toy-study")
    (tmp_path / "toy-study" / "summary.json").unlink()
    early = pcl.open_study(tmp_path / "toy-study")
    assert early.best.key == toys.best.key
    with pytest.raises(ValueError, match="has no winner yet"):
        early.register(tracking=default_uri(toys.path.parent))


def test_a_diverged_encoder_is_refused_and_changed_images_leave_out_neighbours(
    shapes: pcl.Study, toys: pcl.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    champion = toys.champion
    model = champion.packed()
    weights = {name: value * float("nan") for name, value in model.weights.items()}
    bad = dataclasses.replace(model, weights=weights)
    monkeypatch.setattr(registration.Champion, "packed", lambda *_: bad)
    with pytest.raises(ValueError, match="it has diverged"):
        toys.register("bad")
    monkeypatch.undo()
    other = shapes.champion
    trial = dataclasses.replace(other.taken.trial, data="shapes-0123")
    changed = dataclasses.replace(other, taken=dataclasses.replace(other.taken, trial=trial))
    model, notes = registration._model(changed, None)
    assert model.reference is None
    assert "have changed since the training" in notes[0]
