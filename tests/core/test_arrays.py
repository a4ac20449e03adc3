"""What counts as an array: anything that shares its memory, taken without a copy and without its library."""

import array
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import rankwise as dist
from rankwise.basics.arrays import as_array, as_bytes, device_of
from rankwise.testing import local_world


class OnlyDLPack:
    """An array of some library that shares its memory through DLPack alone."""

    def __init__(self, data):
        self.data = data

    def __dlpack__(self, **kwargs):
        return self.data.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.data.__dlpack_device__()


class OnlyInterface:
    """... through the array interface alone."""

    def __init__(self, data):
        self.__array_interface__ = data.__array_interface__
        self.data = data


class Subclass(np.ndarray):
    pass


def foreign(kind, data):
    makers = {
        "dlpack": OnlyDLPack,
        "array interface": OnlyInterface,
        "memoryview": memoryview,
        "subclass": lambda a: a.view(Subclass),
    }
    return makers[kind](data)


@pytest.mark.parametrize("kind", ["dlpack", "array interface", "memoryview", "subclass"])
def test_other_libraries_arrays_share_their_memory(kind):
    data = np.arange(4.0)
    taken = as_array(foreign(kind, data))
    assert type(taken) is np.ndarray
    assert np.shares_memory(taken, data)
    assert device_of(taken) == "cpu"


@pytest.mark.parametrize("kind", ["dlpack", "array interface", "memoryview", "subclass"])
def test_collectives_fill_other_libraries_arrays(kind):
    def program():
        data = np.ones(3, np.float32)
        dist.all_reduce(foreign(kind, data))
        return data.tolist()

    with local_world(2) as ranks:
        assert ranks.run(program) == [[2.0] * 3] * 2


def test_buffers_of_the_standard_library_are_arrays():
    assert as_array(array.array("d", [1, 2])).dtype == np.float64
    assert as_array(bytearray(b"abc")).flags.writeable
    assert not as_array(b"abc").flags.writeable


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1, r"int is not an array; make one with numpy.array"),
        (1.5, "float"),
        (True, "bool"),
        (np.float32(1), "numpy.float32 is not an array"),
        ([1, 2], "a list is not an array"),
        ((1, 2), "a list is not an array"),
        ("text", "str"),
        (None, "NoneType"),
        (object(), "does not share its memory"),
        (np.ma.masked_array([1, 2]), "mask"),
    ],
)
def test_what_is_no_array_is_a_type_error_that_says_how_to_make_one(value, words):
    with pytest.raises(TypeError, match=words):
        as_array(value)


def test_a_device_that_is_neither_cpu_nor_cuda_is_refused():
    class Elsewhere(OnlyDLPack):
        def __dlpack_device__(self):
            return (10, 0)

    with pytest.raises(TypeError, match="device type 10"):
        as_array(Elsewhere(np.ones(1)))


@pytest.mark.parametrize("dtype", ["f4", ">i2", "M8[s]", "S3", "?", [("a", "i4")], ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)], ids=str)
def test_any_plain_memory_is_seen_as_bytes(dtype, shape):
    data = np.zeros(shape, dtype)
    view = as_bytes(data)
    assert (view.nbytes, view.format, view.ndim) == (data.nbytes, "B", 1)
    if data.size:
        view[0] = 1
        assert data.tobytes()[0] == 1


def test_importing_the_core_imports_none_of_the_heavy_libraries():
    code = "import sys, rankwise; print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = ["zmq", "cupy", "mpi4py", "torch", "scipy", "pluggy", "msgpack", "asyncio", "rich", "ml_dtypes"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
