"""A packed encoder: the same answers as the training's own, from a folder, and neighbours by angle."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import vonmises_fisher

from pcl.config.run_config import RunConfig
from pcl.data.embedded import embedded
from pcl.distributions import VonMisesFisher
from pcl.prediction.packed_encoder import PackedEncoder
from pcl.prediction.posteriors import Reference, prediction_of
from pcl.storage.files import Damaged
from tests.support.user_parts import ENCODER, written

IMAGES = RunConfig.of({"task.data": "embedded", "encoder.width": 2}, task="images", scale="smoke")
TOY = RunConfig.of({}, scale="smoke")


def packed(config: RunConfig, reference: Reference | None = None, seed: int = 3) -> PackedEncoder:
    encoder = config.encoder.build_for(config.task.inputs, (seed,))
    return PackedEncoder(config, seed, encoder.run_state(0), reference)


def test_a_folder_gives_the_same_answers(tmp_path: Path) -> None:
    images = embedded().images.images[:7]
    reference = Reference(packed(IMAGES).encode(images).mu, torch.arange(7) % 2, ("even", "odd"))
    before = packed(IMAGES, reference)
    before.save(tmp_path / "model")
    after = PackedEncoder.load(tmp_path / "model")
    assert (after.config, after.seed) == (IMAGES, 3)
    found = after.predict_images([image.permute(1, 2, 0).numpy() for image in images])
    direct = before.encoder(images.unsqueeze(0))
    assert torch.equal(found.mu, direct.mu[0])
    assert torch.equal(found.kappa, direct.kappa[0])
    assert found.neighbours is not None
    assert found.neighbours.labels == ["even", "odd"] * 3 + ["even"]
    assert found.neighbours.is_inside.all()
    assert found.neighbours.angle.max() < 1e-3
    (tmp_path / "model" / "encoder.pt").write_bytes(b"damaged")
    with pytest.raises(Damaged, match="not a packed encoder"):
        PackedEncoder.load(tmp_path / "model")


def test_many_images_are_encoded_in_blocks_and_the_bad_one_is_counted_from_the_first() -> None:
    model, image = packed(IMAGES), np.zeros((32, 32, 3), dtype=np.uint8)
    assert model.predict_images([image] * 501).kappa.shape == (501,)
    with pytest.raises(ValueError, match="Image 500 must be"):
        model.predict_images([*[image] * 500, b"nothing"])
    with pytest.raises(ValueError, match="At least one image"):
        model.predict_images([])


def test_numbers(tmp_path: Path) -> None:
    model = packed(TOY)
    x = torch.rand(5, *TOY.task.inputs.shape, dtype=torch.float64)
    found = model.predict_numbers(x)
    assert torch.equal(found.kappa, model.encoder(x.float().unsqueeze(0)).kappa[0])
    assert found.neighbours is None
    for wrong, told in ((x[:, 1:], "must be of shape"), (x[:0], "N >= 1"), (x / 0, "finite")):
        with pytest.raises(ValueError, match=told):
            model.predict_numbers(wrong)
    with pytest.raises(ValueError, match="takes numbers"):
        model.predict_images([b""])
    other = replace(model, config=RunConfig.of({"encoder.hidden": "deep"}, scale="smoke"))
    with pytest.raises(ValueError, match="do not fit"):
        other.encode(x.float())


def test_a_users_encoder_travels(tmp_path: Path) -> None:
    """Its file lies in the folder, and is found there where the original is gone."""
    mine = written(tmp_path, ENCODER, ("A user's own", "My own"))
    config = RunConfig.of({}, scale="smoke", encoder=mine)
    model = packed(config)
    model.save(tmp_path / "model")
    Path(mine.rpartition(":")[0]).unlink()
    del sys.modules[f"pcl_user_file_{config.encoder_name.rpartition('#')[2]}"]
    loaded = PackedEncoder.load(tmp_path / "model")
    x = torch.rand(3, *config.task.inputs.shape)
    assert torch.equal(loaded.encode(x).kappa, model.encode(x).kappa)
    assert str(tmp_path / "model") in str(loaded.config.encoder_name)


def test_the_credible_angle_holds_95_percent() -> None:
    mu = torch.nn.functional.normalize(torch.ones(1, 5, dtype=torch.float64), dim=-1)
    for kappa in (0.5, 20.0, 500.0):
        found = prediction_of(VonMisesFisher(mu, torch.tensor([kappa], dtype=torch.float64)))
        samples = vonmises_fisher(mu[0].numpy(), kappa).rvs(20_000, random_state=np.random.default_rng(1))
        share = (np.arccos(np.clip(samples @ mu[0].numpy(), -1, 1)) <= float(found.credible_angle)).mean()
        assert share == pytest.approx(0.95, abs=0.006)  # four standard errors
    assert float(prediction_of(VonMisesFisher(mu, math.inf)).credible_angle) == 0


def test_the_nearest_neighbour_and_its_cap() -> None:
    mu = torch.nn.functional.normalize(torch.tensor([[1.0, 0.1, 0.0], [0.0, 1.0, 1.0]]), dim=-1)
    reference = Reference(torch.eye(3)[:2], torch.tensor([1, 0]), ("a", "b"))
    found = prediction_of(VonMisesFisher(mu, torch.tensor([10.0, 1000.0])), reference).neighbours
    assert found is not None
    assert found.labels == ["b", "a"]
    assert found.angle.tolist() == pytest.approx([math.atan(0.1), math.pi / 4], abs=1e-6)
    assert found.is_inside.tolist() == [True, False]
    with pytest.raises(ValueError, match="must have mu"):
        Reference(torch.eye(3), torch.tensor([1]), ("a", "b"))
