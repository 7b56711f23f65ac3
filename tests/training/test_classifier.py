"""The pretrained classifier as an encoder: its certainties, its weights, and the ablation that compares them."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pcl.config.run_config import RunConfig
from pcl.data import embedded
from pcl.data.images import ImageSet
from pcl.data.weights import Weights, keep_weights, load_weights, weights_folder
from pcl.encoders import Certainty, ClassifierEncoder
from pcl.metrics.names import TEST
from pcl.metrics.uncertainty import rank_corr_with_uncertainty
from pcl.studies.space.ablation import load_ablation
from pcl.training.pretraining import Pretraining, Recipe
from pcl.training.run import Run

WIDTH = 4


@pytest.fixture(scope="module")
def data() -> ImageSet:
    return embedded().images


@pytest.fixture(scope="module")
def pretraining(data: ImageSet) -> Pretraining:
    training = Pretraining(data, Recipe(WIDTH, 1, 100, 0.05, erased=0))
    for _ in training:
        pass
    return training


@pytest.fixture(scope="module")
def weights(pretraining: Pretraining) -> Weights:
    return pretraining.weights()


@pytest.fixture
def kept(weights: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The weights' file in a data folder of its own."""
    monkeypatch.setenv("PCL_DATA", str(tmp_path))
    return keep_weights(weights, weights_folder())


def config_of(certainty: str, weights: str) -> RunConfig:
    values = {"task.data": "embedded", "encoder.weights": weights, "encoder.certainty": certainty, "task.n_eval": 200}
    return RunConfig.of(values, task="images", scale="smoke", encoder="classifier")


def test_files_keep_the_classification_layer(kept: Path, weights: Weights, tmp_path: Path) -> None:
    again = load_weights(kept)
    assert set(again.head) == {"weight", "bias"}
    assert all(torch.equal(again.head[name], value) for name, value in weights.head.items())
    assert again.digest == weights.digest != replace(weights, head={}).digest
    content = torch.load(kept, weights_only=True)
    torch.save({**content, "head": {"weight": content["head"]["weight"] + 1, "bias": content["head"]["bias"]}},
               tmp_path / "changed.pt")  # fmt: skip
    with pytest.raises(ValueError, match="is damaged"):
        load_weights(tmp_path / "changed.pt")


def test_files_of_earlier_versions_have_none(kept: Path, weights: Weights) -> None:
    earlier = replace(weights, head={})
    path = keep_weights(earlier, kept.parent)
    content = torch.load(path, weights_only=True)
    del content["head"]
    torch.save(content, path)
    assert load_weights(path).head == {}
    with pytest.raises(ValueError, match=r"needs a classification layer, which .* lacks; train weights with"):
        ClassifierEncoder(ClassifierEncoder.Config(WIDTH, path.name), [1])
    ClassifierEncoder(ClassifierEncoder.Config(WIDTH, path.name, Certainty.NORM), [1])


def test_certainties_are_the_classifiers_own(kept: Path, pretraining: Pretraining, data: ImageSet) -> None:
    """Against its logits and features, image by image; ranks are those of entropy and norm, whatever the unit is."""
    images = data.images[:50]
    pretraining.net.eval()
    with torch.no_grad():
        logits = pretraining._logits(images)
        features = pretraining.net[0]((images - pretraining._mean) / pretraining._deviation)
    pretraining.net.train()
    entropies = torch.tensor([torch.distributions.Categorical(logits=row).entropy() for row in logits.double()])
    found = {}
    for certainty in Certainty:
        encoder = ClassifierEncoder(ClassifierEncoder.Config(WIDTH, kept.name, certainty), [1, 2])
        with torch.no_grad():
            encoder.log_unit += torch.tensor([0.0, 2.0])
            posterior = encoder(images.expand(2, *images.shape))
        torch.testing.assert_close(posterior.mu[1], torch.nn.functional.normalize(features, dim=-1))
        torch.testing.assert_close(posterior.kappa[1], posterior.kappa[0] * torch.tensor(2.0).exp())
        found[certainty] = posterior.kappa[1]
    assert rank_corr_with_uncertainty(found[Certainty.ENTROPY], entropies) == pytest.approx(1)
    assert rank_corr_with_uncertainty(found[Certainty.NORM], -features.norm(dim=-1)) == pytest.approx(1)
    assert found[Certainty.CONSTANT].unique().numel() == 1


def test_only_the_unit_is_trained(kept: Path, tmp_path: Path) -> None:
    run = Run(config_of("entropy", kept.name), (1, 2))
    before = {name: value.clone() for name, value in run.step.encoder.state_dict().items()}
    *_, last = run
    assert not last.failures
    changed = [name for name, value in run.step.encoder.state_dict().items() if not torch.equal(value, before[name])]
    assert changed == ["log_unit"]
    state = run.step.encoder.run_state(1)
    with torch.no_grad():
        run.step.encoder.log_unit.zero_()
    run.step.encoder.load_run_state(1, state)
    assert torch.equal(run.step.encoder.log_unit[1], state["log_unit"])
    run.save(tmp_path / "run.pt")
    assert Run.restore(tmp_path / "run.pt").config == run.config


@pytest.mark.parametrize(("loss", "profile"), [("info_nce", "paper"), ("hib", "reference"), ("mc_info_nce", "exact")])
def test_it_goes_with_all_losses_and_profiles(loss: str, profile: str) -> None:
    config = RunConfig.of(
        {"task.data": "embedded", "task.n_eval": 20, "encoder.width": 2, "training.n_batches": 1}, task="images",
        scale="smoke", encoder="classifier", loss=loss, profile=profile,
    )  # fmt: skip
    assert RunConfig.from_flat(config.flat()) == config
    assert config.encoder.dim == 16
    (report,) = Run(config, (1,))
    assert not report.failures


def test_names_of_encoders() -> None:
    with pytest.raises(ValueError, match=r"`encoder` must be one of classifier, FILE\.py:CLASS, but got 'clasifier'"):
        RunConfig.of(task="images", encoder="clasifier")
    with pytest.raises(ValueError, match="takes images, but the task's inputs are"):
        RunConfig.of(encoder="classifier")
    with pytest.raises(ValueError, match=r"`encoder.width >= 1` must hold"):
        RunConfig.of({"encoder.width": 0}, task="images", encoder="classifier")


@pytest.mark.parametrize("profile", ["paper", "reference", "exact"])
def test_the_ablation_compares_them_with_the_profiles_own_training(profile: str) -> None:
    cells = load_ablation("uncertainty_baselines").cells(profile, "paper", (4, 5))
    assert list(cells.trials) == ["MCInfoNCE", "softmax entropy", "feature norm", "constant"]
    assert not cells.left_out
    base = {"loss.kappa_pos": 16, "encoder.dim": 8, "encoder.head_gain": 16, "training.kappa_limit": "inf"}
    assert cells.trials["MCInfoNCE"].config == RunConfig.of(base, profile=profile, task="images").flat()
    for trial in list(cells.trials.values())[1:]:
        assert (trial.config["encoder_name"], trial.config["training.n_batches"]) == ("classifier", 1)


def test_a_constant_has_no_rank_and_the_features_recall(kept: Path) -> None:
    found = {}
    for certainty in ("constant", "norm"):
        (report,) = Run(config_of(certainty, kept.name).with_values({"training.n_batches": 1}), (4,))
        assert not report.failures
        found[certainty] = report.metrics
    crop, of_entropy, recall = TEST
    assert all(math.isnan(value) for value in (found["constant"][crop], found["constant"][of_entropy]))
    assert found["constant"][recall] == found["norm"][recall] > 0.1  # ten classes
