import os
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch

from tests.support import fork_server, made_once
from tests.support.board_pages import stored
from tests.support.clusters import RAY
from tests.support.services import Home, home
from tests.support.torch_state import restored
from tests.support.trackers import uri

__all__ = ["stored", "uri"]  # of all files: what they stand on is made once

# A machine with a GPU may have torch and pytest alone.
OPTIONAL = {
    "aiohttp",
    "hypothesis",
    "mlflow",
    "moto",
    "mpmath",
    "optuna",
    "pandas",
    "platformdirs",
    "ray",
    "requests",
    "sqlalchemy",
    "threadpoolctl",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)  # cores are shared out between processes
    os.environ.update(RAY)
    is_worker, is_measured = "PYTEST_XDIST_WORKER" in os.environ, "COVERAGE_FILE" in os.environ
    can_fork = sys.platform == "linux" and not is_measured  # coverage begins with a process
    is_run = getattr(config.option, "tx", None) and not (config.option.collectonly or config.option.help)
    if is_run and can_fork and not is_worker:
        from tests.support.forked_workers import fork_workers  # noqa: PLC0415  some have no pytest-xdist

        fork_workers(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two more than cores, but at most four: tests that start services wait as much as they compute."""
    return len(os.sched_getaffinity(0)) + 2


class TestFile(pytest.Module):
    """A file of tests, skipped as a whole where a package that it imports is not installed."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except self.CollectError as error:
            cause = error.__cause__
            missing = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
            if missing not in OPTIONAL:
                raise
            pytest.skip(f"{self.name} needs {missing}, which is not installed", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module:
    return TestFile.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=_expected_seconds, reverse=True)
    if config.option.shuffle is not None:
        random.Random(config.option.shuffle).shuffle(items)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def _expected_seconds(item: pytest.Item) -> float:
    """Return about how long the file takes, as it says itself: the longest begin, so that none is left at the end."""
    return float(getattr(getattr(item, "module", None), "EXPECTED_SECONDS", 0))


@pytest.fixture(autouse=True)
def _independent(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests do not depend on their order: switches are put back, and on a GPU the global generators start anew."""
    if request.node.get_closest_marker("gpu"):
        torch.manual_seed(20230202)
    with restored():
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all processes of a test run have in common."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def _made_once(shared_folder: Path) -> Iterator[None]:
    """Studies have what costs most in common, where it would be the same."""
    made_once.copy_mlflow_databases(shared_folder)
    made_once.copy_optuna_databases(shared_folder)
    made_once.open_databases_quickly()
    made_once.keep_costs()
    made_once.keep_pictures()
    yield
    made_once.undo()


@pytest.fixture(scope="session", autouse=True)
def _one_fork_server(shared_folder: Path) -> None:
    fork_server.share(shared_folder)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20230202)


@pytest.fixture
def place() -> Iterator[Home]:
    with home() as found:
        yield found
