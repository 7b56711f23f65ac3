"""The house keeps its shape: what may import what, what is pinned, and that both forms of every command run."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from launch.testbed.processes import DEADLINE_S
from tests.support.pace import limit

ROOT = Path(__file__).parent.parent

IMPORT_CORE_WITHOUT_SERVICES = """
import importlib, importlib.util, pkgutil, sys
blocked = {"ray", "mlflow", "optuna", "matplotlib", "pandas"}
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ImportError(f"the core must not import {name}")
sys.meta_path.insert(0, Blocker())
import pcl
of_triton = () if importlib.util.find_spec("triton") else ("pcl.kernels.", "pcl.training.fused_step")
left_out = ("pcl.studies", *of_triton)
names = [m.name for m in pkgutil.walk_packages(pcl.__path__, "pcl.") if not m.name.startswith(left_out)]
for name in names:
    importlib.import_module(name)
assert not blocked & set(sys.modules)
print(len(names))
"""


def run(*command: str, timeout: float = DEADLINE_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)


def test_core_imports_without_ray_mlflow_and_optuna() -> None:
    result = run(sys.executable, "-c", IMPORT_CORE_WITHOUT_SERVICES)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= 15


def test_import_is_fast_and_loads_no_service() -> None:
    """In seconds of its own: others may be at work beside it."""
    loaded = "sorted({'ray', 'mlflow', 'optuna', 'torch'} & set(sys.modules))"
    result = run(sys.executable, "-c", f"import sys, time, pcl; print({loaded}); print(time.process_time())")
    modules, seconds = result.stdout.splitlines()
    assert modules == "[]"
    assert float(seconds) < 4


def test_the_board_reads_records_alone() -> None:
    """It starts at once, and needs neither Ray nor what trains; MLflow's client is for servers."""
    code = (
        "import sys, dashboards.board.server, dashboards.board.export, dashboards.board.store.mlflow_mirror; "
        "print(sorted({'ray', 'torch', 'optuna', 'mlflow', 'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    assert run(sys.executable, "-c", code).stdout.strip() == "[]"


def test_files_are_read_without_running_what_is_in_them() -> None:
    """SECURITY.md says so: no pickles, and tensors, arrays and YAML by the ways that make plain values alone."""
    safe = {"torch.load": "weights_only=True", "np.load": "allow_pickle=False", "yaml.safe_load": ""}
    seen = set()
    for path in (
        path for name in ("pcl", "launch", "dashboards", "search_spaces") for path in (ROOT / name).rglob("*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
                assert not {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"} & set(names), path
            if isinstance(node, ast.Call) and re.search(
                r"\b(torch|np|numpy|yaml)\.\w*load\w*$", ast.unparse(node.func)
            ):
                call = ast.unparse(node.func)
                assert call in safe, f"{path}: {call}"
                assert safe[call] in ast.unparse(node), f"{path}: {ast.unparse(node)}"
                seen.add(call)
    assert seen == set(safe)


def test_packages_belong_to_one_distribution() -> None:
    code = "import pcl, search_spaces, launch, dashboards; print('together')"
    assert run(sys.executable, "-c", code).stdout.strip() == "together"
    include = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {name.rstrip("*") for name in include} == {"pcl", "search_spaces", "launch", "dashboards"}


def test_lock_pins_everything_and_satisfies_the_ranges() -> None:
    pins = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.!]+( ; .*)?", line), line
        requirement = Requirement(line)
        pins[requirement.name.lower().replace("_", "-")] = str(requirement.specifier).removeprefix("==")
    assert pins["torch"] == "2.10.0"
    assert pins["torchvision"] == "0.25.0"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in project["dependencies"] + project["optional-dependencies"]["dev"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(Version(pins[requirement.name]))
    ranges = {Requirement(text).name: Requirement(text).specifier for text in project["dependencies"]}
    assert all(ranges["torch"].contains(f"2.{minor}.0") for minor in (10, 11, 12, 13))


def test_what_is_imported_is_declared() -> None:
    names = {"PIL": "pillow", "yaml": "pyyaml"}
    bundled = {"psutil": "ray", "triton": "torch"}  # in Ray's own wheel; of exactly one version for each of torch's
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {Requirement(text).name for text in project["dependencies"]}
    packages = {"pcl", "launch", "dashboards", "search_spaces"}
    imported = set()
    for path in (path for name in packages for path in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.partition(".")[0])
    others = imported - packages - set(sys.stdlib_module_names)
    assert {names.get(name, bundled.get(name, name)) for name in others} == declared


def test_readme_example() -> None:
    """The README's Python block with a loss samples, evaluates it and backpropagates, in ten lines at most."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (code,) = (block for block in blocks if "MCInfoNCE" in block)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    assert all(word in code for word in ("sample", "loss", "backward"))
    check = "\nassert all(t.grad is not None and t.grad.isfinite().all() for t in (direction, log_kappa))\n"
    result = run(sys.executable, "-W", "error", "-c", code + check)
    assert result.returncode == 0, result.stderr


COMMANDS = sorted(path.stem for path in (ROOT / "launch").glob("*.py") if path.stem != "__init__")
HEAVY = {"torch", "ray", "mlflow", "optuna", "matplotlib", "pandas", "scipy", "sqlalchemy", "torchvision"}

HELP = """
import contextlib, runpy, sys, time
sys.argv[:2] = [f"launch/{sys.argv[1]}.py"]
with contextlib.suppress(SystemExit):
    runpy.run_path(sys.argv[0], run_name="__main__")
print(time.process_time(), *sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run_as_file_and_as_module(command: str) -> None:
    as_file = run(sys.executable, f"launch/{command}.py", "-h")
    as_module = run(sys.executable, "-m", f"launch.{command}", "-h")
    assert as_file.returncode == as_module.returncode == 0
    assert as_file.stdout == as_module.stdout
    assert "usage" in as_file.stdout


LISTS = [[command, "--list"] for command in ("grid", "ablate", "reproduce")]
MISSPELT = [["grid", "--space", "toy_mcinfonc"], ["ablate", "--ablation", "mc_sample"]]


@pytest.mark.parametrize("words", [*([command, "-h"] for command in COMMANDS), *LISTS, *MISSPELT], ids=" ".join)
def test_help_lists_and_misspelt_names_answer_at_once(words: list[str]) -> None:
    """In half a second of processor time; the quickest of three, for the first may compile or wait for a disk."""
    for attempt in range(3):
        result = run(sys.executable, "-c", HELP, *words)
        *said, last = result.stderr.splitlines()
        seconds, *modules = last.split()
        assert set(modules) & HEAVY == set()
        assert ("Did you mean" in "".join(said)) == (words in MISSPELT)
        if float(seconds) < limit(0.5):
            return
        print(f"{words} took {seconds} s at attempt {attempt}")
    raise AssertionError(f"`python launch/{words[0]}.py` takes too long; import what is slow in its body.")


def test_commands_are_parsers() -> None:
    """A command has at most 120 lines: its body is in a room that it imports once."""
    long = {name: n for name in COMMANDS if (n := len((ROOT / f"launch/{name}.py").read_text().splitlines())) > 120}
    assert long == {}


def test_what_is_imported_late_says_why() -> None:
    """Imports stand at the top of a file; each of the others has a reason of at least two words behind it."""
    packages = ("pcl", "launch", "dashboards", "search_spaces")
    for path in (path for name in packages for path in (ROOT / name).rglob("*.py")):
        for line in path.read_text().splitlines():
            if "PLC0415" in line:
                assert re.search(r"# noqa: (F401, )?PLC0415  \S+ \S+", line), f"{path}: {line.strip()}"
