"""The house keeps its shape: what may import what, what is pinned, and that both forms of every command run."""

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parent.parent

COMMANDS = sorted(path.stem for path in (ROOT / "launch").glob("*.py") if path.stem != "__init__")


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
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = settings["project"]
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


def test_example_of_a_loss() -> None:
    """The manual's Python block with a loss samples, evaluates it and backpropagates, in ten lines at most."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)
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
