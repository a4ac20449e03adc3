"""What counts as an array: anything that shares its memory, taken without a copy and without its library."""

import array

import ml_dtypes
import numpy as np
import pytest
from tests.by_reference import call
from tests.fresh import loaded
from tests.threads import on_ranks

import rankwise as dist
from rankwise.basics import arrays
from rankwise.basics.arrays import as_array, as_bytes, device_of

PATIENCE_S = 60.0


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


FOREIGN = [OnlyDLPack, OnlyInterface, memoryview, lambda data: data.view(Subclass)]
of_other_libraries = pytest.mark.parametrize("foreign", FOREIGN, ids=["dlpack", "interface", "memoryview", "subclass"])


@of_other_libraries
def test_other_libraries_arrays_share_their_memory(foreign):
    data = np.arange(4.0)
    taken = as_array(foreign(data))
    assert type(taken) is np.ndarray
    assert np.shares_memory(taken, data)
    assert device_of(taken) == "cpu"


@of_other_libraries
@on_ranks(2)
def test_collectives_fill_other_libraries_arrays(foreign):
    data = np.ones(3, np.float32)
    dist.all_reduce(foreign(data))
    assert data.tolist() == [2.0] * 3


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


def test_a_device_that_nothing_installed_brings_is_refused():
    class Elsewhere(OnlyDLPack):
        def __dlpack_device__(self):
            return (10, 0)

    with pytest.raises(TypeError, match="DLPack's type 10, which nothing installed brings"):
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
    heavy = {"zmq", "cupy", "mpi4py", "torch", "scipy", "pluggy", "msgpack", "asyncio", "rich", "ml_dtypes"}
    assert not heavy & call(loaded, "rankwise", timeout_s=PATIENCE_S)


class Column:
    def __init__(self, *values):
        self.values = np.array(values, float)


class Narrow(Column):
    pass


@pytest.fixture
def column(monkeypatch):
    monkeypatch.setattr(arrays, "_converters", {})
    monkeypatch.setattr(arrays, "_writes", {})

    def convert(column):
        if column.values.ndim != 1:
            raise TypeError("it is not flat")
        return column.values

    dist.register_array_type(Column, convert)
    return Column(1, 2)


def test_a_registered_type_is_an_array_to_all_calls(column):
    dist.init_process_group("local", rank=0, world_size=1)
    out = Column(0, 0)
    dist.all_gather([out], column)
    assert out.values.tolist() == [1, 2]
    dist.all_reduce(column, dist.ReduceOp.MAX)
    work = dist.all_reduce(column, async_op=True)
    assert work.result() is column
    assert as_array(column) is column.values


def test_a_subclass_of_a_registered_type_is_another_type(column):
    with pytest.raises(TypeError, match="Narrow is not an array"):
        as_array(Narrow(1))


def test_what_a_converter_refuses_names_argument_and_reason(column):
    column.values = np.ones((2, 2))
    dist.init_process_group("local", rank=0, world_size=1)
    with pytest.raises(TypeError, match="all_reduce on rank 0: tensor: it is not flat"):
        dist.all_reduce(column)


def test_its_library_is_told_of_writes_and_of_nothing_else(column):
    written = []
    dist.register_array_type(Column, lambda column: column.values, written.append)
    dist.init_process_group("local", rank=0, world_size=1)
    out, refused = Column(0, 0), Column(1, 2)
    refused.values.flags.writeable = False
    dist.all_gather([out], column)
    dist.all_reduce(column, async_op=True).wait()
    dist.broadcast(column, 0)  # whose source only reads
    with pytest.raises(ValueError, match="read-only"):
        dist.all_reduce(refused)
    assert written == [out, column]


@pytest.mark.parametrize("name", ["to_numpy", "values"])
def test_what_does_not_share_its_memory_says_what_to_pass(name):
    table = type("Table", (), {name: property(lambda self: np.ones(2))})()
    with pytest.raises(TypeError, match=rf"a .*Table is not an array .*; pass its \.{name}"):
        as_array(table)


def test_tensors_that_cannot_be_shared_say_what_takes_them():
    class Tensor:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            raise BufferError("unsupported dtype bfloat16")

    Tensor.__module__ = "torch"
    with pytest.raises(TypeError, match=r"bfloat16; with `import rankwise_torch; rankwise_torch.install\(\)`"):
        as_array(Tensor())


@pytest.mark.parametrize("kind", [np.ndarray, np.ma.MaskedArray])
def test_arrays_themselves_are_not_registered(kind):
    with pytest.raises(ValueError, match="is an array already"):
        dist.register_array_type(kind, np.asarray)
