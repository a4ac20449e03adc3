"""These tests need Ray, which is too large for the environment of all others: `scripts/test-ray` makes one for them.

One cluster on a loopback address serves all of them, and most share a pool of actors: processes start slowly.
"""

import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent

collect_ignore_glob = [] if find_spec("ray") else ["test_*.py"]

sys.path.insert(0, str(HERE))

# Ray reads some of these when it is imported, which the tests do at once.
# On a loaded machine its processes come up slowly, and Ray gives up.
os.environ.update(
    RAY_agent_register_timeout_ms="300000",
    RAY_worker_register_timeout_seconds="300",
    RAY_AUTH_MODE="disabled",
    RAY_TRAIN_V2_ENABLED="1",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    RAY_DEDUP_LOGS="0",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",  # or Ray puts the host's own address in the place of the loopback one
)

#: How many actors the pool has, and how many CPUs the cluster is said to have.
SIZE, CPUS = 4, 32


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            # Of Ray's, not of ours: it leaves files and sockets to the end of the process.
            for kind in (
                "ResourceWarning",
                "DeprecationWarning",
                "FutureWarning",
                "pytest.PytestUnraisableExceptionWarning",
            ):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))


@pytest.fixture(scope="session")
def cluster():
    """A cluster of one node."""
    import ray

    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # short, as the sockets' paths must be
    try:
        ray.init(
            num_cpus=CPUS,
            include_dashboard=False,
            object_store_memory=200_000_000,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
            namespace="rankwise",
            runtime_env={"env_vars": {"PYTHONPATH": str(HERE)}},
        )
        assert ray.util.get_node_ip_address() == "127.0.0.1", "stores listen where Ray says that the node is"
        yield ray
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def actors(cluster):
    """The pool: what uses it leaves no group behind."""
    from members import Member

    made = [Member.remote() for _ in range(SIZE)]
    cluster.get([actor.__ray_ready__.remote() for actor in made])
    return made
