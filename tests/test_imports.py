"""What a new process loads: commands answer at once, and a machine that only trains needs no service."""

import json
import runpy
from fnmatch import fnmatch
from pathlib import Path

import pytest

from pcl.config.run_config import RunConfig
from tests.support.fresh import Fresh, fresh
from tests.support.pace import limit
from tests.support.smoke import FAST
from tests.support.user_parts import ENCODER, LOSS, TASK

ROOT = Path(__file__).parent.parent
COMMANDS = sorted(path.stem for path in (ROOT / "launch").glob("*.py") if path.stem != "__init__")
SERVICES = {"ray", "mlflow", "optuna", "matplotlib", "pandas"}
HEAVY = SERVICES | {"torch", "numpy", "scipy", "sqlalchemy", "torchvision"}
USERS = RunConfig.of({**FAST, "task.smoothing": "none"}, scale="smoke", loss=LOSS, encoder=ENCODER, task=TASK)

BEGINNING_WITH_TORCH = {
    "core": f"""
import importlib, importlib.util, pkgutil, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {SERVICES}:
            raise ImportError(f"the core must not import {{name}}")
sys.meta_path.insert(0, Blocker())
import pcl
fused = ("pcl.kernels.", "pcl.training.steps.fused_", "pcl.training.steps.integrated_step")
of_triton = () if importlib.util.find_spec("triton") else fused
left_out = ("pcl.studies", *of_triton)
names = [m.name for m in pkgutil.walk_packages(pcl.__path__, "pcl.") if not m.name.startswith(left_out)]
for name in names:
    importlib.import_module(name)
print(len(names))
""",
    "without triton": """
import importlib, json, pkgutil, sys
sys.modules["triton"] = None
import pcl.training, tests.support
rooms = [*pkgutil.walk_packages(pcl.__path__, "pcl."), *pkgutil.iter_modules(tests.support.__path__, "tests.support.")]
missing = []
for room in rooms:
    try:
        if not room.name.startswith("pcl.studies"):
            importlib.import_module(room.name)
    except ImportError as error:
        missing.append(room.name)
print(json.dumps(missing))
""",
    "facade": """
import pcl
for name in pcl.__all__:
    assert getattr(pcl, name).__name__ == name, name
assert set(pcl.__all__) <= set(dir(pcl))
try:
    pcl.nothing
except AttributeError as error:
    print(error)
""",
    "training": """
from tests.support.smoke import smoke
from pcl.training.run import Run
for report in Run(smoke(), (1,)):
    pass
print(report.batch == report.n_batches)
""",
    "spaces": """
import sys
from pcl.studies.space.search_space import load_space, space_names
names = space_names()
print(len([load_space(name) for name in names]))
""",
    "inline": """
import dataclasses, sys, tempfile
sys.modules["ray"] = None
from pathlib import Path
from tests.studies.execution.test_inline_runner import SPACE, StudyFolder, search, spec_of
space = dataclasses.replace(SPACE, stages=SPACE.stages[:1])
with tempfile.TemporaryDirectory() as folder:
    finding = search(space, spec_of(space, tuning_seeds=(1,)), StudyFolder(Path(folder) / "study"))
    print((Path(folder) / "study" / "trials" / finding.best.trial.key / "checkpoint.pt").exists())
""",
    "users": f"""
import json
from pcl.config.run_config import RunConfig
from pcl.config.user_files import trust
flat = json.loads({json.dumps(USERS.flat())!r})
try:
    RunConfig.from_flat(flat)
except ValueError as error:
    print(error)
trust(flat)
print(RunConfig.from_flat(flat).fingerprint())
""",
}


@pytest.fixture(scope="module")
def with_torch() -> dict[str, Fresh]:
    found = fresh(*BEGINNING_WITH_TORCH.values(), after="import torch")
    assert [one.ended for one in found] == [0] * len(found)
    return dict(zip(BEGINNING_WITH_TORCH, found, strict=True))


def test_the_core_needs_no_service(with_torch: dict[str, Fresh]) -> None:
    assert int(with_torch["core"].out) >= 15
    assert not with_torch["core"].packages & SERVICES


def test_what_needs_triton_is_not_collected_without_it(with_torch: dict[str, Fresh]) -> None:
    patterns = runpy.run_path(str(ROOT / "conftest.py"))["NEEDS_TRITON"]
    missing = [name.replace(".", "/") + ".py" for name in json.loads(with_torch["without triton"].out)]
    assert "pcl/training/steps/fused_loss_step.py" in missing
    assert not [path for path in missing if not any(fnmatch(path, pattern) for pattern in patterns)]


def test_names_of_the_facade_are_loaded_on_first_use(with_torch: dict[str, Fresh]) -> None:
    assert "has no attribute 'nothing'" in with_torch["facade"].out
    assert "ray" not in with_torch["facade"].packages


def test_training_loads_neither_the_compiler_nor_symbolic_algebra(with_torch: dict[str, Fresh]) -> None:
    """Each would be a second or two of every worker's start."""
    assert with_torch["training"].out == "True\n"
    assert not with_torch["training"].modules & {"torch._dynamo", "sympy"}


def test_spaces_and_studies_in_this_process_need_no_ray(with_torch: dict[str, Fresh]) -> None:
    assert int(with_torch["spaces"].out) >= 5
    assert "ray" not in with_torch["spaces"].packages
    assert with_torch["inline"].out == "True\n"


def test_other_processes_load_users_files_by_path_once_they_are_told_to(with_torch: dict[str, Fresh]) -> None:
    """As Ray's workers do with what a study's driver sends."""
    refused, fingerprint = with_torch["users"].out.splitlines()
    assert "was not named here" in refused
    assert fingerprint == USERS.fingerprint()


def test_imports_are_fast_and_load_no_service() -> None:
    """The board needs neither Ray nor what trains, and starts at once; MLflow's client is for servers."""
    package, whole, board = fresh(
        "import pcl",
        "import pcl, search_spaces, launch, dashboards",
        "import launch.board, launch.viewing.board, dashboards.board.store.mlflow_mirror",
    )
    assert not package.packages & HEAVY
    assert package.seconds < 4
    assert {"pcl", "search_spaces", "launch", "dashboards"} <= whole.packages  # of one distribution
    assert not board.packages & (SERVICES | {"torch"})


def at_once(*parts: str) -> list[Fresh]:
    """Run parts that answer in half a second of processor time: the quickest of three, for the first may compile."""
    found = fresh(*parts)
    for _ in range(2):
        slow = [i for i, one in enumerate(found) if one.seconds >= 0.5 and one.seconds >= limit(0.5)]
        for i, again in zip(slow, fresh(*(parts[i] for i in slow)) if slow else [], strict=True):
            found[i] = min(found[i], again, key=lambda one: one.seconds)
    for part, one in zip(parts, found, strict=True):
        assert one.seconds < 0.5 or one.seconds < limit(0.5), f"{part} takes too long; import what is slow in its body"
    return found


def test_commands_answer_for_help_at_once_as_file_and_as_module() -> None:
    asked = "import runpy, sys; sys.argv[:] = ['launch/{0}.py', '-h']; "
    as_file = asked + "sys.path[0] = 'launch'; runpy.run_path(sys.argv[0], None, '__main__')"
    as_module = asked + "runpy.run_module('launch.{0}', None, '__main__')"
    answers = at_once(*(form.format(name) for name in COMMANDS for form in (as_file, as_module)))
    for by_file, by_module in zip(answers[::2], answers[1::2], strict=True):
        assert by_file.ended == by_module.ended == 0
        assert by_file.out == by_module.out
        assert "usage" in by_file.out
        assert not by_file.packages & HEAVY


ASKED = "import runpy, sys; sys.argv[:] = {0}; runpy.run_path(sys.argv[0], None, '__main__')"


def test_lists_and_misspelt_names_answer_at_once() -> None:
    lists = [[f"launch/{name}.py", "--list"] for name in ("grid", "ablate", "reproduce")]
    misspelt = [
        ["launch/grid.py", "--space", "toy_mcinfonc"], ["launch/ablate.py", "--ablation", "mc_sample"],
        ["launch/reproduce.py", "--table", "bench_result"],
    ]  # fmt: skip
    commands = [*lists, *misspelt]
    for words, answer in zip(commands, at_once(*map(ASKED.format, commands)), strict=True):
        assert not answer.packages & HEAVY, words
        assert (answer.ended, "Did you mean" in answer.out) == ((2, True) if words in misspelt else (0, False))


def test_misspelt_settings_parts_and_studies_are_told_before_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "study.json").write_text("{}")
    grid, stored = ["grid", "--space", "toy_small"], ["--storage", str(tmp_path)]
    near = [
        [*grid, "--set", "training.lrr=1"], ["ablate", "--ablation", "loss", "--set", "training.lrr=1"],
        ["reproduce", "--table", "bench_results", "--set", "training.lrr=1"], ["train", "--set", "training.lrr=1"],
        ["train", "--task", "imagess"], ["train", "--loss", "hibb"], ["train", "--encoder", "clasifier"],
        ["train", "--scale", "qick"], ["grid", "--resume", "mime", *stored], ["ablate", "--resume", "mime", *stored],
        ["look", "mime", *stored], ["apply", "mime", ".", *stored], ["verify", "mime", *stored],
        ["champion", "mime", *stored], ["champion", str(tmp_path / "mime")],
        [*grid, "--search", "optuna", "--warm-start", "mime", *stored],
    ]  # fmt: skip
    other = [
        [*grid, "--set", "training.lr=abc"], ["train", "--set", "loss.positive_weight=two"],
        ["train", "--device", "gpu"], ["look", "checkpoint.pt", "--storage", str(tmp_path / "none")],
    ]  # fmt: skip
    commands = [[f"launch/{name}.py", *flags] for name, *flags in [*near, *other]]
    answers = fresh(*map(ASKED.format, commands))
    for words, answer in zip(commands, answers, strict=True):
        assert (answer.ended, answer.out.count("\n")) == (2, 1), (words, answer.out)
        assert not answer.packages & HEAVY, words
    assert all("Did you mean" in answer.out for answer in answers[: len(near)])
