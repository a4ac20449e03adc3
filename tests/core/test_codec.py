"""The object codec: everything that travels comes back with exactly its types, and the rest is refused by place."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import io
import math
import os
import pathlib
import struct
import sys
import uuid
import zoneinfo
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests import fresh
from tests.warm import call

from rankwise.codec import MAX_DEPTH, MAX_INT_BYTES, DecodeError, decode, encode, register_dataclass

PATIENCE_S = 60.0

UTC = datetime.timezone.utc
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
once = settings(deadline=None, derandomize=True, database=None)


@dataclasses.dataclass(frozen=True)
class Frozen:
    key: str
    at: Any = None


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = 0


@dataclasses.dataclass
class Slotted:
    __slots__ = ("left", "right")
    left: Any
    right: Any


@dataclasses.dataclass
class Derived(Point):
    kind: ClassVar[str] = "derived"
    total: Any = dataclasses.field(init=False)
    factor: dataclasses.InitVar[int] = 1

    def __post_init__(self, factor: int) -> None:
        self.x *= factor
        self.total = (self.x, self.y)


class SubPoint(Point):
    pass


class Colour(enum.Enum):
    RED = 1


Pair = collections.namedtuple("Pair", "a b")


def same(a: Any, b: Any) -> bool:
    """Compare values and exact types, all the way down, telling -0.0 from 0.0 and finding nan in its place."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, collections.deque):
        return a.maxlen == b.maxlen and same(list(a), list(b))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, (set, frozenset)):
        return same(sorted(a, key=repr), sorted(b, key=repr))
    if isinstance(a, np.ndarray):
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, (datetime.datetime, datetime.time)):
        return (a.isoformat(), a.fold, repr(a.tzinfo)) == (b.isoformat(), b.fold, repr(b.tzinfo))
    # Not all of these compare, nan and signalling nan among them.
    return repr(a) == repr(b) if isinstance(a, (decimal.Decimal, np.generic)) else bool(a == b)


def back(obj: Any) -> Any:
    return decode(encode(obj))


zones = (
    st.none()
    | st.timezones()
    | st.builds(datetime.timezone, st.timedeltas(datetime.timedelta(hours=-23), datetime.timedelta(hours=23)))
)
hashable_leaves = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.integers(-(2**300), 2**300), st.fractions(), st.uuids(), st.binary()),
    *(st.floats(allow_nan=False), st.complex_numbers(allow_nan=False), st.decimals(allow_nan=False)),
    *(st.dates(), st.times(timezones=zones), st.datetimes(timezones=zones), st.timedeltas()),
    *(st.text(st.characters()), st.text(st.characters(categories=["Cs", "Ll"]), max_size=4)),
    st.builds(range, st.integers(), st.integers(), st.integers(1, 9)),
    st.text("ab/.", min_size=1).map(pathlib.PosixPath),
    st.builds(Frozen, st.text(max_size=3), st.integers()),
    hnp.from_dtype(np.dtype("f4"), allow_nan=False),
    hnp.from_dtype(np.dtype("i2")),
)
leaves = st.one_of(
    *(hashable_leaves, st.floats(), st.complex_numbers(), st.decimals(), st.binary().map(bytearray)),
    st.lists(st.floats(), min_size=14, max_size=18),
    st.lists(st.integers(-(2**63), 2**63), min_size=14, max_size=18),
    st.lists(st.booleans() | st.integers(0, 1), min_size=14, max_size=18),
    hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0, max_side=3)),
)
keys = hashable_leaves | st.lists(hashable_leaves, max_size=2).map(tuple) | st.frozensets(hashable_leaves, max_size=2)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists, dicts = st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=3)
    sets, frozensets = st.sets(keys, max_size=3), st.frozensets(keys, max_size=3)
    pairs = st.builds(Point, inner, inner), st.builds(Slotted, inner, inner)
    return st.one_of(
        *(lists, lists.map(tuple), dicts, dicts.map(collections.OrderedDict), sets, frozensets, *pairs),
        st.builds(Frozen, st.text(max_size=3), inner),
    )


objects = st.recursive(leaves, containers, max_leaves=12)


@given(objects)
@settings(once, max_examples=400)
def test_objects_come_back_as_they_were(obj):
    assert same(obj, back(obj))


@pytest.mark.parametrize(
    "obj",
    [
        *(float("nan"), -float("nan"), math.inf, -math.inf, -0.0, 5e-324, complex(-0.0, math.nan)),
        *(0, -1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 256**MAX_INT_BYTES // 2 - 1),
        *("", "\0", "é\U0001f600", "\udcff", os.fsdecode(b"caf\xe9"), "\ud83d\ude00"),
        *(b"", b"\0\xff", bytearray(b"ab"), [], (), {}, set(), frozenset(), [[]], ((),), {(): []}),
        *([0] * 15, [0] * 16, (0,) * 16, [0.5] * 17, (math.nan,) * 16, [0] * 15 + [True], [0] * 15 + [2**63]),
        {"b": 1, "a": 2, 3: None, None: 4, (1, (2,)): 5, frozenset({1}): 6, b"k": 7, 1.5: 8, True: 9},
        collections.OrderedDict([("b", 1), ("a", [])]),
        *(collections.Counter("abca"), collections.Counter(), collections.deque([1, "b"]), collections.deque([2], 3)),
        *(range(0), range(10), range(2, -(10**30), -3)),
        *(datetime.date.min, datetime.date.max, datetime.timedelta.min, datetime.timedelta.max),
        *(datetime.datetime.min, datetime.datetime.max, datetime.time.max, datetime.time(1, tzinfo=UTC)),
        datetime.datetime(2021, 10, 31, 2, 30, fold=1, tzinfo=BERLIN),
        datetime.datetime(2021, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(seconds=-61, microseconds=1))),
        *(UTC, BERLIN, datetime.timezone(datetime.timedelta(hours=1), "here")),
        *map(decimal.Decimal, ("1.50", "-0E+7", "sNaN12", "-Infinity", "1E+999999")),
        *(fractions.Fraction(-3, 7), uuid.UUID(int=7)),
        *(pathlib.Path("/a/b"), pathlib.PurePosixPath("x"), pathlib.Path()),
        *(np.float32(1.5), np.float64(2.5), np.int8(-3), np.bool_(True), np.longdouble(1) / 3, np.complex64(1j)),
        *(np.datetime64("2020-01-01"), np.datetime64("NaT", "s"), np.timedelta64(3, "25s"), np.str_("é\0")),
        *(np.void(b"abc"), np.bytes_(b"\0"), np.str_(""), np.array((1, 2.5), "i4,>f8")[()], ml_dtypes.bfloat16(1.5)),
        *(np.dtype("f4"), np.dtype(">M8[25s]"), np.dtype([(("t", "x"), "i1"), ("y", "f8", (2, 3))], align=True)),
        *(np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(("<i2", (3,)))),
    ],
    ids=lambda obj: type(obj).__name__,
)
def test_values_at_the_edges_come_back(obj):
    assert same(obj, back(obj))


def test_two_nans_may_be_two_keys():
    assert len(back({float("nan"): 1, float("nan"): 2})) == 2


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda raw: memoryview(b"x" + raw)[1:]])
def test_any_buffer_can_be_decoded_and_nothing_keeps_it(kind):
    buffer = bytearray(encode([b"abc", bytearray(b"abc"), np.arange(3)]))
    found = decode(kind(buffer))
    buffer[:] = bytes(len(buffer))
    assert same(found, [b"abc", bytearray(b"abc"), np.arange(3)])


DTYPES = [
    *("?", "i1", "<i2", ">i4", "u8", "f2", "f4", ">f8", "c8", "c16", "g", "G", "S5", "U3", ">U2", "V7"),
    *("M8", "M8[ns]", ">M8[us]", "m8[25s]", "S0", "U0", "V0", [], [("a", "<i4"), ("b", ">f8", (2,))]),
    np.dtype([(("title", "x"), "i1"), ("y", [("z", "i8"), ("é", "U1")])], align=True),
    np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [8, 2], "itemsize": 20}),
    np.dtype({"names": [], "formats": [], "itemsize": 3}),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)], ids=str)
def test_every_dtype_and_shape_comes_back(dtype, shape):
    array = np.ndarray(shape, dtype, np.arange(1000).astype("u1"))
    found = back(array)
    assert same(found, array)
    assert found.dtype.isalignedstruct == array.dtype.isalignedstruct
    assert all(getattr(found.flags, name) for name in ("c_contiguous", "writeable", "owndata", "aligned"))


@given(hnp.arrays(hnp.scalar_dtypes() | hnp.array_dtypes(max_size=3), hnp.array_shapes(min_dims=0, min_side=0)))
@settings(once, max_examples=100)
def test_any_plain_array_comes_back(array):
    assert same(array, back(array))


VIEWS = [np.asfortranarray, np.transpose, lambda a: a[::-1, ::2], lambda a: a[1]]
VIEWS += [lambda a: np.broadcast_to(a, (2, 4, 6))]


@pytest.mark.parametrize("view", VIEWS)
def test_views_arrive_with_their_content_in_c_order(view):
    array = view(np.arange(24, dtype="i4").reshape(4, 6))
    array.flags.writeable = False
    found = back(array)
    assert same(found, np.array(array, order="C"))
    assert found.flags.writeable


def test_64_dimensions_come_back():
    ndim = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
    assert back(np.ones((1,) * ndim)).shape == (1,) * ndim


def test_a_dtype_of_ml_dtypes_is_known_only_where_that_is_imported(monkeypatch):
    data = encode(np.zeros(2, ml_dtypes.float8_e5m2fnuz))
    monkeypatch.delitem(sys.modules, "ml_dtypes")
    with pytest.raises(DecodeError, match="needs ml_dtypes"):
        decode(data)
    assert "ml_dtypes" not in sys.modules


def test_a_dataclass_arrives_by_its_fields_without_running_its_code():
    sent = Derived([1], 2, factor=3)
    sent.note = "what is no field stays behind"
    found = back(sent)
    assert vars(found) == {"x": [1, 1, 1], "y": 2, "total": ([1, 1, 1], 2)}
    assert type(found) is Derived


def test_of_classes_of_one_name_the_last_one_is_meant():
    def make(value):
        @dataclasses.dataclass
        class Local:
            x: int

        return Local(value)

    first, second = make(1), make(2)
    encode(first)
    assert type(back(second)) is type(second)
    assert type(decode(encode(first))) is type(first)


def test_classes_of_one_name_with_other_fields_are_told_apart():
    @dataclasses.dataclass
    class Local:
        x: int

    data = encode(Local(1))
    Changed = dataclasses.make_dataclass("Changed", ["x", "y"])
    Changed.__module__, Changed.__qualname__ = Local.__module__, Local.__qualname__
    register_dataclass(Changed)
    with pytest.raises(DecodeError, match=r"fields \(x\) where it was sent, and \(x, y\) here"):
        decode(data)


def test_a_rank_that_only_receives_registers_the_class():
    data = call(fresh.send_job, timeout_s=PATIENCE_S)
    assert "Job(step=5)" in call(fresh.receive_job, data, True, timeout_s=PATIENCE_S)
    assert "@rankwise.register_dataclass" in call(fresh.receive_job, data, False, timeout_s=PATIENCE_S)


def test_the_main_module_of_a_spawned_process_is_the_main_module():
    sent = dataclasses.make_dataclass("Main", ["x"], namespace={"__module__": "__mp_main__"})
    received = dataclasses.make_dataclass("Main", ["x"], namespace={"__module__": "__main__"})
    data = encode(sent(1))
    assert register_dataclass(received) is received
    assert type(decode(data)) is received


@dataclasses.dataclass
class Failure(Exception):
    code: int


@pytest.mark.parametrize("cls", [int, 3, SubPoint, Point(1), Failure], ids=repr)
def test_registering_what_cannot_travel_by_fields_is_a_mistake(cls):
    with pytest.raises(TypeError, match=r"not a dataclass|from fields alone"):
        register_dataclass(cls)


def cyclic() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


#: An array of some other library: all that the codec looks at.
ArrayElsewhere = type("ArrayElsewhere", (), {"dtype": np.dtype(int), "shape": (1,)})


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (object(), r"obj is an object, which does not travel; only pickle=True"),
        ({"a": [1, 2, 3, {4}, len]}, r"obj\['a'\]\[4\] is a builtin_function_or_method"),
        ([{"k": Point(1, (0, print))}], r"obj\[0\]\['k'\]\.y\[1\] is a builtin"),
        ({Colour.RED: 1}, r"obj<key> is a .*Colour.*: send its \.name or \.value"),
        ({10**5000: len}, r"obj<wide int> is a builtin"),
        ([{Colour.RED}], r"obj\[0\]<member> is a .*Colour"),
        (ArrayElsewhere(), r"obj is a .*ArrayElsewhere.*: use the collectives for arrays, or send a copy on the host"),
        (Pair(1, 2), r"Pair.*: send tuple\(\.\.\.\) of it"),
        (collections.defaultdict(int, a=1), r"defaultdict.*: send dict\(\.\.\.\)"),
        (type("Text", (str,), {})("a"), r"Text.*: send str\(\.\.\.\)"),
        (memoryview(b"a"), r"send bytes\(\.\.\.\)"),
        (np.ma.array([1]), r"send numpy\.asarray"),
        (SubPoint(1), r"SubPoint.*: put @dataclass on this subclass too"),
        (Failure(1), r"cannot be made from fields alone"),
        (np.array([None]), r"obj cannot be encoded: an array of Python objects"),
        ([np.zeros(1, [("a", "O")])], r"obj\[0\] cannot be encoded: an array of Python objects"),
        (np.zeros(1, np.dtype((np.record, [("a", "i4")]))), r"the dtype .* does not travel"),
        (type("Mine", (np.float64,), {})(1), r"subclass of a NumPy scalar"),
        (datetime.datetime(2020, 1, 1, tzinfo=type("Zone", (datetime.tzinfo,), {})()), r"obj\[2\] is a .*Zone"),
        (Derived.__new__(Derived), r"without a value for its 'x'"),
        (Point, r"obj is a type"),
    ],
    ids=lambda case: type(case).__name__ if not isinstance(case, str) else "",
)
def test_what_does_not_travel_is_named_with_its_place_and_a_way_out(obj, message):
    with pytest.raises(TypeError, match=message) as caught:
        encode(obj)
    assert "pickle=True" in str(caught.value)


def test_a_zone_read_from_a_file_has_no_name_to_travel_by():
    counts = struct.pack(">6L", 0, 0, 0, 0, 1, 4)
    file = io.BytesIO(b"TZif" + bytes(16) + counts + bytes(6) + b"UTC\0")
    with pytest.raises(TypeError, match="ZoneInfo without"):
        encode(zoneinfo.ZoneInfo.from_file(file))


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (cyclic(), r"obj(\[0\]){8}\.\.\. is nested deeper than 64 levels; does it contain itself"),
        ([256**MAX_INT_BYTES // 2], r"obj\[0\] is an int of more than 65536 bits"),
        ({"a": np.empty(2**25, "V0")}, r"obj\['a'\] brings the number of items over 16777216"),
    ],
    ids=["cycle", "int", "items"],
)
def test_what_is_over_a_limit_is_named_with_its_place(obj, message):
    with pytest.raises(ValueError, match=message):
        encode(obj)


@pytest.mark.parametrize("leaf", [1, UTC, np.float32(1), np.zeros(1, "i4,i4"), Point(1)], ids=repr)
@pytest.mark.parametrize("levels", range(MAX_DEPTH - 6, MAX_DEPTH + 2))
def test_whatever_depth_is_encoded_can_be_decoded(leaf, levels):
    obj = leaf
    for _ in range(levels):
        obj = [obj]
    try:
        data = encode(obj)
    except ValueError:
        assert levels > MAX_DEPTH - 6
    else:
        assert levels <= MAX_DEPTH
        assert same(decode(data), obj)
