"""A cluster of Dask's for all tests: four workers of one thread each, processes of this machine.

These tests need Dask, which the environment of all others does not have: `scripts/test-dask` makes one for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

if find_spec("distributed") and find_spec("rankwise_dask"):
    import dask
    import distributed

    collect_ignore_glob = []
else:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[distributed.LocalCluster]:
    """Return a cluster without a dashboard, whose workers come back when they are killed."""
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "60s"}),
        distributed.LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=":0") as cluster,
    ):
        yield cluster


@pytest.fixture
def client(cluster: distributed.LocalCluster) -> Iterator[distributed.Client]:
    """Return a client that sees all workers, those too that have come back."""
    with distributed.Client(cluster) as client:
        client.wait_for_workers(4, timeout=120)
        yield client
