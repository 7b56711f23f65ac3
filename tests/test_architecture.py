"""The house keeps its shape: what may import what, what is pinned, and that both forms of every command run."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from launch.testbed.processes import DEADLINE_S
from tests.support.pace import limit

ROOT = Path(__file__).parent.parent

SERVICES = {"ray", "mlflow", "optuna", "matplotlib", "pandas"}
HEAVY = SERVICES | {"torch", "numpy", "scipy", "sqlalchemy", "torchvision"}
COMMANDS = sorted(path.stem for path in (ROOT / "launch").glob("*.py") if path.stem != "__init__")

# A new interpreter that forks for every part, so that each begins with nothing imported: parts do not wait for each
# other's Python to start. Of every part: what it printed, the modules it has loaded, and its processor time.
FRESH = """
import contextlib, io, json, os, runpy, sys, time
for code in json.loads(sys.argv[1]):
    reading, writing = os.pipe()
    if os.fork() == 0:
        started = time.process_time()  # a child's clock begins at 0
        printed, ended = io.StringIO(), 0
        with contextlib.redirect_stdout(printed):
            try:
                exec(code, {"__name__": "part"})
            except SystemExit as end:
                ended = end.code
        seconds = time.process_time() - started
        names = sorted({name.split(".")[0] for name in sys.modules})
        with open(writing, "w") as file:
            json.dump({"ended": ended, "out": printed.getvalue(), "modules": names, "seconds": seconds}, file)
        os._exit(0)
    os.close(writing)
    with open(reading) as file:
        print(file.read() or "null")
    os.wait()
"""

IMPORT_CORE = f"""
import importlib, importlib.util, pkgutil
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {SERVICES}:
            raise ImportError(f"the core must not import {{name}}")
sys.meta_path.insert(0, Blocker())
import pcl
of_triton = () if importlib.util.find_spec("triton") else ("pcl.kernels.", "pcl.training.fused_step")
left_out = ("pcl.studies", *of_triton)
names = [m.name for m in pkgutil.walk_packages(pcl.__path__, "pcl.") if not m.name.startswith(left_out)]
for name in names:
    importlib.import_module(name)
print(len(names))
"""  # fmt: skip


@dataclass(frozen=True)
class Fresh:
    """What a part of a program did in an interpreter that had loaded nothing."""

    ended: int
    out: str
    modules: set[str]
    seconds: float


def fresh(*parts: str) -> list[Fresh]:
    code = json.dumps([f"import runpy, sys; {part}" for part in parts])
    command = [sys.executable, "-c", FRESH, code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert None not in found, done.stderr
    return [Fresh(**{**one, "modules": set(one["modules"])}) for one in found]


def test_core_imports_without_ray_mlflow_and_optuna() -> None:
    (core,) = fresh(IMPORT_CORE)
    assert int(core.out) >= 15
    assert not core.modules & SERVICES


def test_imports_are_fast_and_load_no_service() -> None:
    """The board needs neither Ray nor what trains, and starts at once; MLflow's client is for servers."""
    package, whole, board = fresh(
        "import pcl",
        "import pcl, search_spaces, launch, dashboards",  # which belong to one distribution
        "import dashboards.board.server, dashboards.board.export, dashboards.board.store.mlflow_mirror",
    )
    assert not package.modules & HEAVY
    assert package.seconds < 4
    assert {"pcl", "search_spaces", "launch", "dashboards"} <= whole.modules
    assert not board.modules & (SERVICES | {"torch"})
    include = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {name.rstrip("*") for name in include} == {"pcl", "search_spaces", "launch", "dashboards"}


def test_commands_answer_for_help_at_once_as_file_and_as_module() -> None:
    """In half a second of processor time; the quickest of three, for the first may compile or wait for a disk."""
    asked = "sys.argv[:] = ['launch/{0}.py', '-h']; "
    as_file = asked + "sys.path[0] = 'launch'; runpy.run_path(sys.argv[0], None, '__main__')"
    as_module = asked + "runpy.run_module('launch.{0}', None, '__main__')"
    slow = COMMANDS
    for _ in range(3):
        files, modules = (fresh(*(form.format(name) for name in slow)) for form in (as_file, as_module))
        for by_file, by_module in zip(files, modules, strict=True):
            assert by_file.ended == by_module.ended == 0
            assert by_file.out == by_module.out
            assert "usage" in by_file.out
            assert not by_file.modules & HEAVY
        slow = [name for name, found in zip(slow, files, strict=True) if found.seconds >= limit(0.5)]
        if not slow:
            return
    raise AssertionError(f"`python launch/{slow[0]}.py -h` takes too long; import what is slow in its body.")


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


def test_readme_example() -> None:
    """The README's Python block with a loss samples, evaluates it and backpropagates, in ten lines at most."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (code,) = (block for block in blocks if "MCInfoNCE" in block)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    assert all(word in code for word in ("sample", "loss", "backward"))
    names: dict[str, Any] = {}
    exec(code, names)
    assert all(names[leaf].grad.isfinite().all() for leaf in ("direction", "log_kappa"))


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
