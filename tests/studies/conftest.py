from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.made_once import copy_optuna_databases


@pytest.fixture(scope="session", autouse=True)
def _optuna_databases_made_once(shared_folder: Path) -> Iterator[None]:
    """Searches begin with a copy of an empty database."""
    with pytest.MonkeyPatch.context() as patch:
        copy_optuna_databases(patch, shared_folder)
        yield
