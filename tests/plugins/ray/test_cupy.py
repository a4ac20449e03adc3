"""CuPy arrays between actors, over gloo. No GPU is needed: the stand-in for CuPy has threads for its streams."""

import os
from pathlib import Path

import pytest
from members import Base

import rankwise_ray

HERE = Path(__file__).parent
FAKES = HERE.parents[1] / "fakes"
SIZE, PATIENCE_S = 2, 60.0


class OnDevice(Base):
    """An actor with arrays on a device, filled by what its current stream has to do."""

    def on_device(self, op, name, *rest):
        """Carry out one operation on an array, and return what that holds then."""
        import cupy

        array = cupy.full((3,), self.state(name)[0] + 1.0, "float32")
        out = self.do(op, name, array, *rest)
        assert isinstance(out, cupy.ndarray)
        return cupy.asnumpy(out).tolist()


@pytest.fixture(scope="module")
def pair(cluster):
    """Two actors of a group whose CuPy is the stand-in."""
    variables = {"PYTHONPATH": os.pathsep.join(map(str, (HERE, FAKES))), "RANKWISE_RAY_BACKEND": "gloo"}
    kind = cluster.remote(num_cpus=0.5, runtime_env={"env_vars": variables})(OnDevice)
    made = [kind.remote() for _ in range(SIZE)]
    rankwise_ray.create_group(made, "devices")
    yield made
    rankwise_ray.destroy_group(made, "devices")
    for actor in made:
        cluster.kill(actor)


def calls(pair, op, *rest):
    return [actor.on_device.remote(op, "devices", *rest) for actor in pair]


def test_what_gloo_takes_by_way_of_the_host(cluster, pair):
    assert cluster.get(calls(pair, "allreduce"), timeout=PATIENCE_S) == [[3.0] * 3] * 2
    assert cluster.get(calls(pair, "broadcast", 1), timeout=PATIENCE_S) == [[2.0] * 3] * 2
    assert cluster.get(calls(pair, "reduce", 1), timeout=PATIENCE_S) == [[1.0] * 3, [3.0] * 3]
