import os

import pytest
import torch


def pytest_configure() -> None:
    torch.set_num_threads(1)  # as many workers as cores, and one more


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than cores: tests that start services wait as much as they compute."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20230202)
