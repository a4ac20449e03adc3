"""These tests need Ray, which is too large for the environment of all others: `scripts/test-ray` makes one for them.

One cluster on a loopback address serves all of them, and most share a pool of actors: processes start slowly.

No wait is without an end. A group's operations end by the group's own time-out, which names the ranks that are missing;
what does not end even then is told by `Patient.get`.
"""

import os
import shutil
import signal
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
#: What a group's operations may take, and any call of an actor, on a machine with nothing else to do.
OPERATION_S, CALL_S = 60.0, 120.0
#: How long the end of a run that was told to end may take: Ray waits without an end for a cluster that is gone.
FAREWELL_S = 20


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


class Patient:
    """Ray as these tests use it: `get` is bounded.

    Args:
        ray: Ray.
        slowness: Tells by how much slower than an idle machine this one is.
    """

    def __init__(self, ray, slowness):
        self._ray, self._slowness = ray, slowness

    def __getattr__(self, name):
        return getattr(self._ray, name)

    def get(self, calls, timeout=None):
        """Return what calls have returned, once all have; name those that do not end."""
        limit_s = CALL_S * self._slowness() if timeout is None else timeout
        try:
            return self._ray.get(calls, timeout=limit_s)
        except self._ray.exceptions.GetTimeoutError:
            every = calls if isinstance(calls, list) else [calls]
            _, pending = self._ray.wait(every, num_returns=len(every), timeout=0)
            names = ", ".join(str(every.index(call)) for call in pending)
            raise AssertionError(f"calls {names} of {len(every)} have not ended within {limit_s:g} s") from None


@pytest.fixture(scope="session")
def cluster(request):
    """A cluster of one node."""
    import ray

    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # short, as the sockets' paths must be
    slowness = request.config.slowness
    variables = {"PYTHONPATH": str(HERE), "RANKWISE_RAY_TIMEOUT_S": str(OPERATION_S * slowness)}
    signal.signal(signal.SIGTERM, _end_the_run)
    try:
        ray.init(
            num_cpus=CPUS,
            include_dashboard=False,
            object_store_memory=200_000_000,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
            namespace="rankwise",
            runtime_env={"env_vars": variables},
        )
        assert ray.util.get_node_ip_address() == "127.0.0.1", "stores listen where Ray says that the node is"
        signal.signal(signal.SIGTERM, _end_the_run)  # in the place of Ray's
        yield Patient(ray, lambda: request.config.slowness)
    except SystemExit:  # Ray's handler, as its cluster began
        _end_the_run(signal.SIGTERM, None)
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def _end_the_run(number, frame):
    """End the run: with Ray's handler one test fails, and the others wait for a cluster that was told to end too."""
    signal.signal(number, signal.SIG_DFL)
    signal.alarm(FAREWELL_S)
    pytest.exit("the run was told to end", returncode=128 + number)


@pytest.fixture(scope="session")
def pool(cluster):
    return _new_actors(cluster)


@pytest.fixture
def actors(cluster, pool):
    """Actors that most tests share: what uses them leaves no group behind. If one does not come free, others follow."""
    yield pool
    try:
        cluster.get([actor.now.remote() for actor in pool])
    except Exception:
        for actor in pool:
            cluster.kill(actor)
        pool[:] = _new_actors(cluster)
        raise


def _new_actors(cluster):
    from members import Member

    made = [Member.remote() for _ in range(SIZE)]
    cluster.get([actor.__ray_ready__.remote() for actor in made])
    return made
