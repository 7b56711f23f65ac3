import os
from collections.abc import Iterator

import pytest
import torch

from tests.board_pages import stored
from tests.clusters import RAY
from tests.services import Home, home
from tests.trackers import uri

__all__ = ["stored", "uri"]  # of all files: what they stand on is made once


def pytest_configure() -> None:
    torch.set_num_threads(1)  # as many workers as cores, and one more
    os.environ.update(RAY)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than cores: tests that start services wait as much as they compute."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_is_quick)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def _is_quick(item: pytest.Item) -> bool:
    """Whether it is in a file that starts no Ray; those that do take longest, and begin."""
    return not {"home", "Home", "cluster"} & set(vars(getattr(item, "module", None) or object))


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20230202)


@pytest.fixture
def place() -> Iterator[Home]:
    with home() as found:
        yield found
