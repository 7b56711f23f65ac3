"""The rooms of the house: which may import which, and that no two of them, and no two files, import each other."""

import ast
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("pcl", "search_spaces", "launch", "dashboards")

# Room -> rooms that it may import beside itself. "pcl" is the facade alone. A room is a folder.
ROOMS: dict[str, tuple[str, ...]] = {
    "pcl": (
        "pcl.config", "pcl.distributions", "pcl.losses", "pcl.storage", "pcl.studies.api", "pcl.studies.space",
        "pcl.training",
    ),
    "pcl.mathematics": (),
    "pcl.storage": (),
    "pcl.metrics": (),
    "pcl.presentation": ("pcl.metrics",),
    "pcl.distributions": ("pcl.mathematics",),
    "pcl.losses": ("pcl.distributions", "pcl.mathematics"),
    "pcl.data": ("pcl.mathematics", "pcl.storage"),
    "pcl.encoders": ("pcl.data", "pcl.distributions", "pcl.mathematics"),
    "pcl.tasks": ("pcl.data", "pcl.distributions", "pcl.encoders", "pcl.losses", "pcl.mathematics", "pcl.metrics"),
    "pcl.config": ("pcl.encoders", "pcl.losses", "pcl.metrics", "pcl.tasks"),
    "pcl.kernels": ("pcl.distributions", "pcl.mathematics"),
    "pcl.kernels.networks": ("pcl.encoders",),
    "pcl.kernels.integrated": ("pcl.distributions", "pcl.mathematics"),
    "pcl.training.steps": (
        "pcl.config", "pcl.distributions", "pcl.encoders", "pcl.kernels", "pcl.kernels.integrated",
        "pcl.kernels.networks", "pcl.losses", "pcl.mathematics", "pcl.tasks",
    ),
    "pcl.training": (
        "pcl.config", "pcl.data", "pcl.distributions", "pcl.encoders", "pcl.losses", "pcl.mathematics", "pcl.metrics",
        "pcl.storage", "pcl.tasks", "pcl.training.steps",
    ),
    "pcl.prediction": ("pcl.config", "pcl.data", "pcl.distributions", "pcl.encoders"),
    "pcl.studies": (),
    "pcl.studies.serving": ("pcl.prediction",),
    "pcl.studies.space": ("pcl.config", "pcl.metrics", "pcl.storage"),
    "pcl.studies.ledger": ("pcl.config", "pcl.metrics", "pcl.storage", "pcl.studies.space"),
    "pcl.studies.results": ("pcl.config", "pcl.metrics", "pcl.storage", "pcl.studies.ledger", "pcl.studies.space"),
    "pcl.studies.paper": ("pcl.config", "pcl.metrics", "pcl.studies.results"),
    "pcl.studies.tracking": (
        "pcl.config", "pcl.metrics", "pcl.storage", "pcl.studies.ledger", "pcl.studies.results", "pcl.studies.space",
    ),
    "pcl.studies.registry": (
        "pcl.config", "pcl.data", "pcl.mathematics", "pcl.prediction", "pcl.presentation", "pcl.storage",
        "pcl.studies.results", "pcl.studies.serving", "pcl.studies.tracking", "pcl.tasks", "pcl.training",
    ),
    "pcl.studies.cluster": ("pcl.data", "pcl.storage", "pcl.studies.ledger"),
    "pcl.studies.execution": (
        "pcl.config", "pcl.losses", "pcl.metrics", "pcl.presentation", "pcl.storage", "pcl.studies.cluster",
        "pcl.studies.ledger", "pcl.studies.results", "pcl.studies.space", "pcl.studies.tracking", "pcl.training",
    ),
    "pcl.studies.search": (
        "pcl.config", "pcl.storage", "pcl.studies.execution", "pcl.studies.ledger", "pcl.studies.results",
        "pcl.studies.space", "pcl.studies.tracking",
    ),
    "pcl.studies.inspection": (
        "pcl.config", "pcl.data", "pcl.distributions", "pcl.mathematics", "pcl.metrics", "pcl.prediction",
        "pcl.presentation", "pcl.storage", "pcl.studies.ledger", "pcl.studies.results", "pcl.tasks", "pcl.training",
    ),
    "pcl.studies.report": (
        "pcl.config", "pcl.data", "pcl.mathematics", "pcl.metrics", "pcl.presentation", "pcl.storage",
        "pcl.studies.execution", "pcl.studies.inspection", "pcl.studies.ledger", "pcl.studies.results",
        "pcl.studies.search", "pcl.studies.space", "pcl.training",
    ),
    "pcl.studies.session": (
        "pcl.config", "pcl.mathematics", "pcl.metrics", "pcl.storage", "pcl.studies.cluster", "pcl.studies.execution",
        "pcl.studies.ledger", "pcl.studies.report", "pcl.studies.results", "pcl.studies.search", "pcl.studies.space",
        "pcl.studies.tracking",
    ),
    "pcl.studies.api": (
        "pcl.config", "pcl.data", "pcl.distributions", "pcl.storage", "pcl.studies.execution", "pcl.studies.ledger",
        "pcl.studies.registry", "pcl.studies.results", "pcl.studies.search", "pcl.studies.session",
        "pcl.studies.space", "pcl.studies.tracking", "pcl.training",
    ),
    "search_spaces": ("pcl.studies.space",),
    "search_spaces.hard_labels": ("pcl.studies.space",),
    "search_spaces.ablations": ("pcl.studies.space",),
    "search_spaces.ablations.images": ("pcl.studies.space",),
    "search_spaces.ablations.profiles": ("pcl.studies.space",),
    "dashboards": (),
    "dashboards.board.store": ("pcl.metrics", "pcl.studies.tracking"),
    "dashboards.board.html": (
        "dashboards.board.store", "pcl.metrics", "pcl.presentation", "pcl.studies.space", "pcl.studies.tracking",
    ),
    "dashboards.board.charts": ("pcl.presentation", "pcl.studies.results"),
    "dashboards.board.pages": (
        "dashboards.board.charts", "dashboards.board.html", "dashboards.board.store", "dashboards.paper",
        "pcl.metrics", "pcl.presentation", "pcl.storage", "pcl.studies.paper", "pcl.studies.results",
        "pcl.studies.tracking",
    ),
    "dashboards.board": (
        "dashboards.board.html", "dashboards.board.pages", "dashboards.board.store", "dashboards.paper", "pcl.metrics",
        "pcl.presentation", "pcl.storage", "pcl.studies.paper", "pcl.studies.tracking",
    ),
    "dashboards.paper": ("pcl.config", "pcl.presentation", "pcl.studies.paper", "pcl.studies.tracking"),
    "launch.shared": (
        "pcl.config", "pcl.data", "pcl.encoders", "pcl.presentation", "pcl.storage", "pcl.studies.cluster",
        "pcl.studies.ledger", "pcl.studies.paper", "pcl.studies.space", "pcl.studies.tracking", "pcl.training",
    ),
    "launch.testbed": ("pcl.metrics", "pcl.studies.ledger", "pcl.studies.tracking"),
    "launch.benchmarks": (
        "launch.shared", "launch.testbed", "pcl", "pcl.config", "pcl.data", "pcl.distributions", "pcl.losses",
        "pcl.metrics",
        "pcl.prediction", "pcl.storage", "pcl.studies.cluster", "pcl.studies.execution", "pcl.studies.ledger",
        "pcl.studies.registry", "pcl.studies.report", "pcl.studies.results", "pcl.studies.search",
        "pcl.studies.serving", "pcl.studies.space", "pcl.studies.tracking", "pcl.training", "pcl.training.steps",
    ),
    "launch.benchmarks.chaos": (
        "launch.benchmarks", "launch.shared", "launch.testbed", "pcl.config", "pcl.presentation",
        "pcl.studies.ledger", "pcl.studies.tracking", "pcl.studies.verification", "pcl.training",
    ),
    "launch.studies": (
        "launch.shared", "pcl.config", "pcl.data", "pcl.losses", "pcl.storage", "pcl.studies.api",
        "pcl.studies.execution", "pcl.studies.ledger", "pcl.studies.registry", "pcl.studies.report",
        "pcl.studies.session", "pcl.studies.space", "pcl.studies.tracking",
    ),
    "launch.reproduction": (
        "dashboards.board.store", "dashboards.paper", "launch.shared", "launch.studies", "pcl.config", "pcl.data",
        "pcl.presentation", "pcl.storage", "pcl.studies.execution", "pcl.studies.inspection", "pcl.studies.ledger",
        "pcl.studies.paper", "pcl.studies.report", "pcl.studies.session", "pcl.studies.space", "pcl.studies.tracking",
        "pcl.training",
    ),
    "launch.training": (
        "launch.shared", "pcl.config", "pcl.data", "pcl.mathematics", "pcl.metrics", "pcl.storage",
        "pcl.studies.results", "pcl.tasks", "pcl.training",
    ),
    "launch.manual": ("dashboards.paper", "pcl.config", "pcl.presentation", "pcl.studies.paper"),
    "launch.viewing": (
        "dashboards.board", "dashboards.board.store", "launch.shared", "pcl.storage", "pcl.studies.inspection",
        "pcl.studies.ledger", "pcl.studies.tracking", "pcl.studies.verification", "pcl.training",
    ),
    "launch": (
        "dashboards.paper", "launch.benchmarks", "launch.benchmarks.chaos", "launch.manual", "launch.reproduction",
        "launch.shared", "launch.studies", "launch.training", "launch.viewing", "pcl.storage", "pcl.studies.cluster",
        "pcl.studies.ledger", "pcl.studies.paper", "pcl.studies.space",
    ),
    "pcl.studies.verification": (
        "pcl.config", "pcl.metrics", "pcl.storage", "pcl.studies.ledger", "pcl.studies.results", "pcl.studies.search",
        "pcl.studies.space", "pcl.studies.tracking", "pcl.training",
    ),
}  # fmt: skip

# The files of the house: module -> text.
Sources = Mapping[str, str]


@pytest.fixture(scope="module")
def sources() -> Sources:
    found = {}
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        found[".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")] = path.read_text()
    return found


@cache
def import_nodes(text: str) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(text: str, modules: Collection[str]) -> Iterator[str]:
    """The modules of the house that a file imports; `from a.b import c` is of a.b.c where that is a module."""
    for node in import_nodes(text):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] in PACKAGES)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            module = node.module or ""
            if module.split(".")[0] in PACKAGES:
                yield from {full if (full := f"{module}.{name.name}") in modules else module for name in node.names}


def rooms_of(modules: Collection[str]) -> dict[str, str]:
    """The folder of each module; of a package, the package itself."""
    packages = {module[:end] for module in modules for end, character in enumerate(module) if character == "."}
    return {module: module if module in packages else module.rpartition(".")[0] for module in modules}


def forbidden(sources: Sources) -> list[str]:
    """Imports that the table does not allow, and modules in no room of it."""
    rooms = rooms_of(sources)
    wrong = [f"{module} is in no room" for module, room in rooms.items() if room not in ROOMS]
    for module, text in sources.items():
        allowed = {rooms[module], *ROOMS.get(rooms[module], ())}
        wrong += [f"{module} imports {name}" for name in imports(text, sources) if rooms.get(name, name) not in allowed]
    return wrong


def cycles(arrows: Mapping[str, set[str]]) -> list[str]:
    """Of a graph, those nodes that can be reached from themselves."""
    left = {node: set(targets) - {node} for node, targets in arrows.items()}
    while ends := [node for node, targets in left.items() if not targets & set(left)]:
        for node in ends:
            del left[node]
    return sorted(left)


def test_rooms_import_what_the_table_allows(sources: Sources) -> None:
    assert len(sources) > 200
    assert forbidden(sources) == []


def test_a_forbidden_import_in_any_room_is_found(sources: Sources) -> None:
    rooms = rooms_of(sources)
    for room, allowed in ROOMS.items():
        module = next(name for name in sources if rooms[name] == room)
        stranger = next(name for name in sources if rooms[name] not in (room, *allowed) and "." in name)
        changed = {**sources, module: sources[module] + f"\n\ndef _late():\n    import {stranger}\n"}
        assert forbidden(changed) == [f"{module} imports {stranger}"]


def test_nothing_is_imported_in_a_circle(sources: Sources) -> None:
    files = {module: set(imports(text, sources)) & set(sources) for module, text in sources.items()}
    assert cycles(files) == []
    rooms, arrows = rooms_of(sources), dict[str, set[str]]()
    for module, others in files.items():
        arrows.setdefault(rooms[module], set()).update(rooms[other] for other in others)
    assert cycles(arrows) == []
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["a", "b", "c", "d"]


def test_rooms_are_small(sources: Sources) -> None:
    """A person sees a room at a glance: at most 12 modules, and no loose ones beside commands and facades."""
    rooms = rooms_of(sources)
    for room in ROOMS:
        modules = [name for name in sources if rooms[name] == room and name != room]
        assert len(modules) <= 12 or room == "launch", (room, modules)
    loose = {name for name in sources if name.count(".") == 1 and rooms[name] in ("pcl", "dashboards")}
    assert loose == {"pcl.__main__"}  # the command `pcl`
