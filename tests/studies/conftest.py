from pathlib import Path

import pytest

from tests.support.made_once import copy_optuna_databases


@pytest.fixture(scope="session", autouse=True)
def _optuna_databases_made_once(shared_folder: Path) -> None:
    """Searches begin with a copy of an empty database."""
    copy_optuna_databases(shared_folder)
