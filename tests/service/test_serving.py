"""`mlflow models serve` with a registered model: answers over HTTP, and a 4xx for every bad request."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import torch

import pcl
from launch.champion import main as champion
from launch.testbed.processes import Server, free_port, wait_for
from pcl.prediction.pictures import pictures
from pcl.training.trained_encoder import TrainedEncoder
from tests.support.commands import called
from tests.support.models import PICTURES, SHAPES, TOY, loaded, png, searched, text

EXPECTED_SECONDS = 130
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serving")]  # one server for all

JSON = {"Content-Type": "application/json"}
GOOD = [png(pixels) for pixels in PICTURES]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> pcl.Study:
    return searched(SHAPES, tmp_path_factory.mktemp("runs"), "served")


@pytest.fixture(scope="module")
def address(study: pcl.Study, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that is started by the line that `champion.py` prints, in a shell without an activated environment."""
    port, folder = free_port(), tmp_path_factory.mktemp("server")
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(folder)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", bare["PATH"])
        told = called("launch/champion.py", champion, study.name, "--storage", str(study.path.parent)).stdout
    line = told.splitlines()[-1].removeprefix("serve it: ")
    assert line.endswith(" -p 5001")
    line = f"{line.removesuffix('5001')}{port} -h 127.0.0.1"
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            ["/bin/sh", "-c", line], cwd=folder, env=bare, stdout=log, stderr=log, start_new_session=True
        )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: server.poll() is not None or is_up(url), "the model is served")
            assert server.poll() is None, (folder / "log").read_text()
            yield url
        finally:
            os.killpg(server.pid, 15)
            server.wait(30)


def is_up(url: str) -> bool:
    try:
        return requests.get(f"{url}/ping", timeout=2).ok
    except requests.RequestException:
        return False


def asked(url: str, body: Any, headers: dict[str, str] = JSON) -> requests.Response:
    content = body if isinstance(body, bytes) else json.dumps(body)
    return requests.post(f"{url}/invocations", data=content, headers=headers, timeout=120)


def split(*images: object, column: str = "image") -> dict[str, object]:
    return {"dataframe_split": {"columns": [column], "data": [[image] for image in images]}}


def test_answers_over_http_are_those_of_the_trained_encoder(study: pcl.Study, address: str) -> None:
    expected = TrainedEncoder.read(study.champion.checkpoint).encode(pictures(PICTURES))
    for body in (
        split(*map(text, GOOD)),
        {"dataframe_records": [{"image": text(one)} for one in GOOD]},
        split(*(pixels.tolist() for pixels in PICTURES), column="pixels"),
        {"instances": [{"image": text(one)} for one in GOOD]},
        {"inputs": [{"image": text(one)} for one in GOOD]},
    ):
        answer = asked(address, body)
        assert answer.status_code == 200, answer.text
        rows = answer.json()["predictions"]
        assert np.allclose([row["mu"] for row in rows], expected.mu.numpy(), atol=1e-5)
        assert np.allclose([row["kappa"] for row in rows], expected.kappa.numpy(), rtol=1e-5)
        assert {"credible_angle_95", "neighbour_label", "neighbour_angle", "neighbour_inside_95"} <= set(rows[0])


BAD: dict[str, tuple[Any, str]] = {
    "not an image": (split(text(b"not an image")), "Image 0 must be a PNG"),
    "the second of two": (split(text(GOOD[0]), text(b"GIF89a")), "Image 1 must be a PNG"),
    "cut off": (split(text(GOOD[0][:100])), "Image 0 must be a PNG"),
    "empty bytes": (split(""), "Image 0 must be a PNG"),
    "no rows": (split(), "At least one image"),
    "a number": (split(7), "image"),
    "nothing": (split(None), "image"),
    "another column": (split(text(GOOD[0]), column="picture"), "column `image` or `pixels`"),
    "pixels of text": (split("text", column="pixels"), "of the type str"),
    "pixels beyond 255": (split([[[0, 0, 256]]], column="pixels"), "numbers from 0 to 255"),
    "pixels in a row": (split([1, 2, 3], column="pixels"), r"shape (H, W, 3)"),
    "50 MB": (split(text(bytes(50 * 2**20))), "at most 20 MiB, but has 50 MiB"),
    "50 MB of an image": (split(text(GOOD[0] + bytes(50 * 2**20))), "at most 20 MiB"),
    "an empty body": (b"", "JSON"),
    "no JSON": (b"{", "JSON"),
    "a list": ([1, 2], "list"),
    "no table": ({"what": 1}, "dataframe_split"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_gets_a_sentence_and_the_server_lives(address: str, name: str) -> None:
    body, told = BAD[name]
    answer = asked(address, body)
    assert answer.status_code == 400, answer.text[:500]
    assert told in answer.text
    assert len(answer.text) < 20_000
    assert asked(address, split(text(GOOD[0]))).status_code == 200


def test_another_content_type_is_refused(address: str) -> None:
    assert asked(address, GOOD[0], {"Content-Type": "image/png"}).status_code == 415
    assert asked(address, split(text(GOOD[0]))).status_code == 200


def test_a_model_of_a_study_on_a_tracking_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files go through the server's artifact proxy, both ways; a second call finds them."""
    with Server(tmp_path).running(0) as uri:
        study = searched(TOY, tmp_path / "runs", "toys", tracking=uri)
        made = study.register(tracking=uri)
        assert (made.version, made.is_new, made.notes) == (1, True, ())
        assert not study.register(tracking=uri).is_new
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        x = np.linspace(-1, 1, 6).reshape(2, 3)
        expected = study.best.encoder()(torch.from_numpy(x).float())
        assert np.allclose(loaded(made.uri).predict(x)["kappa"], expected.kappa.numpy(), rtol=1e-5)
