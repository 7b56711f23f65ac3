"""A registered model where neither Ray nor this repository is: it loads by its own code, and answers the same."""

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pcl.data.embedded import embedded
from pcl.prediction.packed_encoder import PackedEncoder
from pcl.prediction.posteriors import Reference
from pcl.storage.installation import PACKAGE
from pcl.studies.registry.model_files import save_files
from pcl.studies.registry.package import _OF_IMAGES, copy_code, requirements_of
from tests.prediction.test_packed_encoder import IMAGES, packed
from tests.support.models import PICTURES, png, text
from tests.support.services import ROOT

# Only site-packages are there, and of them neither Ray nor Optuna.
ALONE = """
import base64, importlib.util, json, sys
sys.path[:] = [path for path in sys.path if path not in ("", sys.argv[1])]
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("ray", "optuna", "matplotlib"):
            raise ImportError(f"a model must not need {name}")
sys.meta_path.insert(0, Blocker())
assert importlib.util.find_spec("pcl") is None
import warnings
import pandas as pd
import mlflow
model = mlflow.pyfunc.load_model(sys.argv[2])
images = [base64.b64decode(text) for text in json.loads(sys.argv[3])]
answer = model.predict(pd.DataFrame({"image": images}))
import pcl
ours = sorted(name for name in sys.modules if name.startswith("pcl."))
print(json.dumps({"answer": answer.to_dict("list"), "package": pcl.__file__, "modules": ours}))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model, as it is registered."""
    plain, folder = packed(IMAGES), tmp_path_factory.mktemp("model")
    known = Reference(plain.encode(embedded().images.images[:9]).mu, torch.arange(9) % 2, ("even", "odd"))
    whole = replace(plain, reference=known)
    logged: Any = SimpleNamespace(artifact_location=folder.as_uri(), source_run_id=None, model_id=None)
    assert save_files(folder / "model", whole, requirements_of(whole), {}, logged) == ()
    return folder / "model"


@pytest.mark.slow
def test_a_model_answers_without_ray_and_without_the_repository(model: Path, tmp_path: Path) -> None:
    sent = [png(pixels) for pixels in PICTURES]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PCL_", "MLFLOW"))}
    command = [sys.executable, "-I", "-c", ALONE, str(ROOT), str(model), json.dumps([text(one) for one in sent])]
    found = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert found.returncode == 0, found.stderr
    told = json.loads(found.stdout.splitlines()[-1])
    assert told["package"].startswith(str(model))
    assert not [name for name in told["modules"] if name.startswith(("pcl.training", "pcl.kernels", "pcl.studies.api"))]
    here = PackedEncoder.load(model / "data/encoder").predict_images(sent)
    assert np.allclose(told["answer"]["kappa"], here.kappa.numpy(), rtol=1e-5)
    assert np.allclose(told["answer"]["mu"], here.mu.numpy(), atol=1e-5)
    assert here.neighbours is not None
    assert told["answer"]["neighbour_label"] == here.neighbours.labels


@pytest.mark.slow
def test_requirements_are_exact_and_are_all_that_the_code_imports(model: Path) -> None:
    lines = (model / "requirements.txt").read_text().split()
    assert lines == requirements_of(PackedEncoder.load(model / "data/encoder"))
    assert all("==" in line and "+" not in line for line in lines)
    names = {line.split("==")[0] for line in lines}
    imported = set()
    for file in (model / "code").rglob("*.py"):
        for node in ast.parse(file.read_text()).body:  # what is imported later is not for prediction, but for images
            if isinstance(node, ast.Import):
                imported |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).split(".")[0])
    others = imported - {"pcl"} - set(sys.stdlib_module_names)
    assert others | set(_OF_IMAGES) == names


def test_the_code_has_what_prediction_imports_and_nothing_of_studies_but_the_loader(tmp_path: Path) -> None:
    copy = copy_code(tmp_path)
    assert {path.name for path in (copy / "studies").iterdir()} == {"__init__.py", "serving"}
    assert not (copy / "training").exists()
    for file in copy.rglob("*.py"):
        assert file.read_bytes() == (PACKAGE / file.relative_to(copy)).read_bytes()
