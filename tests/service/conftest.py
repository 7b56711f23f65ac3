from collections.abc import Iterator

import pytest

from tests.support.clusters import Cluster, cluster
from tests.support.services import Home, home


@pytest.fixture(scope="package")
def ray_of_all() -> Iterator[Cluster]:
    """One cluster for all drivers of a process, where the cluster is not what is tested."""
    with cluster(n_cpus=2) as found:
        yield found


@pytest.fixture
def joined(ray_of_all: Cluster) -> Iterator[Home]:
    """A home whose drivers join that cluster."""
    with home(ray_of_all) as found:
        yield found
