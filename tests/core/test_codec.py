"""The object codec: exact round trips, and hostile bytes that get nowhere."""

import dataclasses
import datetime
import decimal
import fractions
import pickle
import sys
import tracemalloc
import uuid
import zoneinfo

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rankwise import CodecError, register_dataclass
from rankwise.codec import decode, encode
from rankwise.codec.format import COUNT, MAX_DEPTH, SIZE, Code


@dataclasses.dataclass
class Point:
    x: int
    tags: list


@dataclasses.dataclass(frozen=True)
class Frozen:
    inner: Point
    label: str = "a"

    def __post_init__(self):
        if sys._getframe(1).f_code.co_filename.endswith("dataclass.py"):
            raise AssertionError("decoding has run code of a class")


DTYPES = [
    *("?", "i1", "<i2", ">i4", "u8", "f2", "f4", ">f8", "c8", "c16", "g", "G", "S5", "U3", "V7"),
    *("M8[ns]", "m8[25s]", [("a", "<i4"), ("b", "f8", (2,))], np.dtype([("x", "i1"), ("y", "i8")], align=True)),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn),
]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**300), max_value=2**300),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(),
    st.binary(),
    st.datetimes(timezones=st.none() | st.just(datetime.timezone.utc) | st.timezones()),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.uuids(),
)
objects = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(scalars, inner, max_size=4),
        st.sets(scalars, max_size=4),
        st.frozensets(scalars, max_size=4),
        st.builds(Point, st.integers(), st.lists(inner, max_size=3)),
        st.binary().map(bytearray),
    ),
    max_leaves=20,
)


def same(a, b):
    """Compare values and exact types, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(map(type, a)) == list(map(type, b)) and a == b and all(same(a[k], b[k]) for k in a)
    if isinstance(a, float):
        return a == b and np.signbit(a) == np.signbit(b)
    if dataclasses.is_dataclass(a):
        return same(dataclasses.astuple(a), dataclasses.astuple(b))
    return a == b


@given(objects)
@settings(deadline=None, max_examples=200)
def test_objects_come_back_as_they_were(obj):
    assert same(obj, decode(encode(obj)))


@given(hnp.arrays(hnp.scalar_dtypes() | hnp.array_dtypes(max_size=3), hnp.array_shapes(min_dims=0, min_side=0)))
@settings(deadline=None, max_examples=100)
def test_any_plain_array_comes_back(array):
    if array.dtype.itemsize == 0:
        return
    back = decode(encode(array))
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert back.flags.writeable


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
def test_every_dtype_and_shape_comes_back(dtype, shape):
    array = np.zeros(shape, dtype)
    array.reshape(-1).view(np.uint8)[:] = 7 if array.dtype.kind not in "?" else 1
    back = decode(encode(array))
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert back.dtype.isalignedstruct == array.dtype.isalignedstruct


def test_fortran_order_becomes_c_order_with_the_same_content():
    array = np.asfortranarray(np.arange(6).reshape(2, 3))
    back = decode(encode(array))
    assert back.flags.c_contiguous
    assert (back == array).all()


def test_numpy_scalars_keep_their_type():
    for value in (np.float32(1.5), np.int8(-3), np.datetime64("2020-01-01"), np.bool_(True)):
        assert type(decode(encode(value))) is type(value)
        assert decode(encode(value)) == value


def test_what_equality_hides_comes_back_too():
    assert np.isnan(decode(encode(float("nan"))))
    assert decode(encode("\udcff")) == "\udcff"
    when = datetime.datetime(2021, 10, 31, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
    back = decode(encode(when))
    assert (back.fold, back.tzinfo.key) == (1, "Europe/Berlin")


def test_dataclasses_are_filled_without_running_their_code():
    frozen = Frozen(Point(3, [1, (2,)]))
    back = decode(encode(frozen))
    assert back == frozen
    assert type(back.inner) is Point


def test_a_local_dataclass_travels_once_registered():
    @dataclasses.dataclass
    class Local:
        x: int

    data = encode(Local(4))
    with pytest.raises(CodecError, match="register_dataclass"):
        decode(data)
    register_dataclass(Local)
    assert decode(data) == Local(4)


def test_registering_what_is_no_dataclass_is_a_mistake():
    with pytest.raises(TypeError, match="not a dataclass"):
        register_dataclass(int)


@pytest.mark.parametrize(
    ("obj", "where"),
    [
        (object(), "obj: "),
        ([1, {"a": (object(),)}], "obj[1]['a'][0]: "),
        (Point(1, [{2: open}]), "obj.tags[0][2]: "),
        (np.array([None]), "obj: arrays of dtype object"),
        (np.zeros(2, "V0"), "obj: arrays of dtype"),
        (type("T", (tuple,), {})(), "pass pickle=True"),
    ],
)
def test_what_does_not_travel_is_named_with_its_place(obj, where):
    with pytest.raises(TypeError) as caught:
        encode(obj)
    assert where in str(caught.value)


def test_what_holds_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError, match="holds itself"):
        encode(loop)


# ---------------------------------------------------------------------- hostile bytes

SAMPLE = encode(
    {"a": [1, 2.5, (None, True)], "b": np.arange(6).reshape(2, 3), "c": Point(1, []), "d": {uuid.UUID(int=7)}}
)


@given(st.binary(max_size=200))
@settings(deadline=None, max_examples=300)
def test_random_bytes_raise_nothing_but_codec_errors(data):
    try:
        decode(data)
    except CodecError:
        pass


@given(st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=6))
@settings(deadline=None, max_examples=400)
def test_changed_bytes_raise_nothing_but_codec_errors(changes):
    data = bytearray(SAMPLE)
    for at, value in changes:
        data[at] = value
    try:
        decode(data)
    except CodecError:
        pass


@pytest.mark.parametrize("end", range(0, len(SAMPLE), 3))
def test_truncated_bytes_are_refused(end):
    with pytest.raises(CodecError):
        decode(SAMPLE[:end])


def array_of(described, shape, data=b""):
    return Code.ARRAY + encode(described) + encode(shape) + SIZE.pack(len(data)) + data


HOSTILE = {
    "nothing": b"",
    "trailing garbage": encode(1) + b"x",
    "nested too deep": Code.LIST + b"\1\0\0\0",
    "a huge string": Code.STR + SIZE.pack(1 << 60) + b"x",
    "a huge list": Code.LIST + COUNT.pack(0xFFFFFFFF),
    "a huge dict": Code.DICT + COUNT.pack(1 << 31) + b"NN",
    "a huge integer": Code.BIG_INT + SIZE.pack(1 << 62),
    "a huge array": array_of("<f8", (1 << 40,)),
    "a huge empty array": array_of("<f8", (0, 1 << 62, 1 << 62)),
    "an array of a huge item": array_of("|S999999999", (1 << 20,)),
    "an array without items": array_of("|S0", (1 << 40,)),
    "a negative shape": array_of("<f8", (-1,)),
    "objects in an array": array_of("|O", (1,), b"\0" * 8),
    "a struct of objects": array_of(("struct", (("a", "|O", 0, None),), (8, False)), (1,), b"\0" * 8),
    "overlapping fields beyond the item": array_of(("struct", (("a", "<f8", 100, None),), (8, False)), (1,), b"\0" * 8),
    "a huge sub-array": array_of(("sub", "<f8", (1 << 40, 1 << 40)), (1,)),
    "an unhashable key": Code.DICT + COUNT.pack(1) + encode([]) + encode(1),
    "a key twice": Code.DICT + COUNT.pack(2) + encode(1) * 4,
    "an item twice": Code.SET + COUNT.pack(2) + encode(1) * 2,
    "a bad string": Code.STR + SIZE.pack(1) + b"\xff",
    "a bad date": Code.DATE + SIZE.pack(3) + b"abc",
    "a bad zone": Code.DATETIME + SIZE.pack(33) + b"2020-01-01T00:00:00 0 ../etc/passw",
    "a bad decimal": Code.DECIMAL + SIZE.pack(3) + b"abc",
    "a fraction of nothing": Code.FRACTION + COUNT.pack(2) + encode(1) + encode(0),
    "a class that is no dataclass": Code.DATACLASS + SIZE.pack(13) + b"os:_Environ.x" + COUNT.pack(0),
    "a module that is not loaded": Code.DATACLASS + SIZE.pack(12) + b"antigravity:" + COUNT.pack(0),
    "other fields": Code.DATACLASS + encode(f"{__name__}:Point")[1:] + COUNT.pack(1) + encode("x") + encode(1),
    "a pickle": pickle.dumps({"a": 1}),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_bytes_are_refused_without_much_memory(data):
    if data == Code.LIST + b"\1\0\0\0":
        data *= 100_000
    tracemalloc.start()
    try:
        with pytest.raises(CodecError):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert "antigravity" not in sys.modules


class Gadget:
    def __reduce__(self):
        return print, ("this must never be printed",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_are_never_loaded(protocol, capsys):
    with pytest.raises(CodecError):
        decode(pickle.dumps(Gadget(), protocol))
    assert capsys.readouterr().out == ""


def test_the_deepest_nesting_that_is_encoded_is_decoded():
    deep = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert decode(encode(deep)) == deep
    with pytest.raises(ValueError, match="deeper"):
        encode([deep])


def test_decimals_and_fractions_are_exact():
    for value in (decimal.Decimal("1.50"), decimal.Decimal("-Infinity"), fractions.Fraction(-3, 7)):
        assert str(decode(encode(value))) == str(value)
