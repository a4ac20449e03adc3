"""The object codec against bytes that nobody encoded: they raise DecodeError, import nothing and reserve nothing."""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import datetime
import decimal
import fractions
import gc
import itertools
import os
import pathlib
import pickle
import random
import struct
import sys
import time
import tracemalloc
import uuid
import zoneinfo
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.warm import call

from rankwise.codec import MAX_DEPTH, MAX_INT_BYTES, MAX_ITEMS, DecodeError, decode, encode, register_dataclass
from rankwise.codec.layout import MAGIC, Tag

PATIENCE_S = 60.0

#: What a DecodeError may be made of. An AttributeError, say, would be a slip of ours that was hidden.
EXPECTED_CAUSES = (ValueError, TypeError, LookupError, ArithmeticError, OSError, struct.error, SystemError)
steady = settings(deadline=None, derandomize=True, database=None)


@register_dataclass
@dataclasses.dataclass(frozen=True)
class Key:
    value: Any

    def __hash__(self) -> int:
        return self.value.no_such_attribute


@register_dataclass
@dataclasses.dataclass(frozen=True)
class Plain:
    value: Any
    other: Any = None


SAMPLES = [
    encode(obj)
    for obj in (
        {"a": [1, 2.5, (None, True)], "b": np.arange(6).reshape(2, 3), "c": Plain([], {}), "d": {uuid.UUID(int=7)}},
        [datetime.datetime(2020, 1, 2, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")), datetime.timedelta(1), 2**100],
        [datetime.time(1, tzinfo=datetime.timezone.utc), datetime.date(2020, 1, 1), decimal.Decimal("1.5"), 1j],
        [fractions.Fraction(1, 3), pathlib.Path("a"), range(3), frozenset({1, "é"}), bytearray(b"x"), b"y"],
        [np.zeros(2, [("a", "i4"), ("b", "f8", (2,))]), np.float32(1), np.dtype("M8[ns]"), np.str_("a")],
        [[0] * 20, (0.5,) * 20, {(1, "a"): {2: {}}}],
    )
]


def body(data: bytes) -> bytes:
    """Return an encoded object's one value, to be put inside of another."""
    return data[len(MAGIC) :]


def value(obj: Any) -> bytes:
    return body(encode(obj))


def head(tag: int, count: int) -> bytes:
    return struct.pack("<BQ", tag, count)


def array(spec: Any, *shape: int, memory: bytes = b"") -> bytes:
    return struct.pack(f"<BB{len(shape)}Q", Tag.ARRAY, len(shape), *shape) + value(spec) + memory


def struct_spec(*fields: Any, itemsize: Any = 8, aligned: Any = False) -> Any:
    return ("struct", itemsize, aligned, fields)


def small(code: str, payload: Any) -> bytes:
    return bytes((Tag.VALUE,)) + code.encode() + value(payload)


def dataclass(signature: str, *values: Any) -> bytes:
    raw = signature.encode()
    return head(Tag.DATACLASS, len(raw)) + raw + b"".join(map(value, values))


HUGE = 2**64 - 1
HOSTILE = {
    "nothing": b"",
    "an unknown tag": b"\0",
    **{f"huge {chr(tag)}": head(tag, HUGE) for tag in b"IsyYltefmpqPQD"},
    **{f"one too many {chr(tag)}": head(tag, 3) + b"NN" for tag in b"IsyYltefpqPQD"},
    "a dict without its last value": head(Tag.DICT, 2) + b"NNT",
    "a list within lists, each of all that follows": b"".join(head(Tag.LIST, 9 * n) for n in range(60, 0, -1)),
    "a wide int": head(Tag.BIG_INT, MAX_INT_BYTES + 1) + bytes(MAX_INT_BYTES + 1),
    "bad text": head(Tag.STR, 2) + b"\xff\xfe",
    "overlong text": head(Tag.STR, 2) + b"\xc0\x80",
    "a list as key": head(Tag.DICT, 1) + value([]) + b"N",
    "a dict as member": head(Tag.SET, 1) + value({}),
    "an array as key": head(Tag.DICT, 1) + value(np.zeros(2)) + b"N",
    "a key that cannot be hashed": head(Tag.DICT, 1) + value(Key(1)) + b"N",
    "a signalling nan as key": head(Tag.DICT, 1) + value(decimal.Decimal("sNaN")) + b"N",
    "a key twice": head(Tag.DICT, 2) + value("k") * 4,
    "equal keys of two types": head(Tag.DICT, 2) + value(1) + b"N" + value(1.0) + b"N",
    "a member twice": head(Tag.FROZENSET, 2) + value(1) * 2,
    # arrays
    "a huge array": array("<f8", 2**40),
    "a huge empty array": array("<f8", 0, 2**62, 2**62),
    "a shape whose product overflows": array("<f8", 2**32, 2**32),
    "dimensions beyond counting": array("<f8", *[1] * 65),
    "too few bytes for a shape": bytes((Tag.ARRAY, 255)),
    "huge items": array("|S999999999", 2),
    "many items of no size": array("|V0", MAX_ITEMS + 1),
    "an array of objects": array("|O", 1, memory=bytes(8)),
    "an object in a structure": array(struct_spec(("a", None, 0, "|O")), 1, memory=bytes(8)),
    "a dtype of an evaluated text": array("f8,f8", 1, memory=bytes(16)),
    "a dtype of a list": array("[('a','f8')]", 1, memory=bytes(8)),
    "a dtype that is none": array("<f3", 1, memory=bytes(3)),
    "a dtype of a name": array("float64", 1, memory=bytes(8)),
    "a long unit": array("<M8[99999999999s]", 1, memory=bytes(8)),
    "an unknown unit": array("<M8[xx]", 1, memory=bytes(8)),
    "a dtype that is a number": array(8, 1, memory=bytes(8)),
    "a dtype of nothing": array((), 1, memory=bytes(8)),
    "a dtype of a strange kind": array(("what", 1, 2, 3), 1, memory=bytes(8)),
    "a dtype with too few parts": array(("struct",), 1, memory=bytes(8)),
    "a module's attribute as dtype": array("ml_dtypes.finfo", 1, memory=bytes(8)),
    "a dunder as dtype": array("ml_dtypes.__builtins__", 1, memory=bytes(8)),
    "a field beyond the item": array(struct_spec(("a", None, 100, "<f8")), 1, memory=bytes(8)),
    "a field before the item": array(struct_spec(("a", None, -8, "<f8")), 1, memory=bytes(8)),
    "a field twice": array(struct_spec(("a", None, 0, "<f4"), ("a", None, 4, "<f4")), 1, memory=bytes(8)),
    "a field without a name": array(struct_spec((None, None, 0, "<f8")), 1, memory=bytes(8)),
    "a field with a wrong title": array(struct_spec(("a", 5, 0, "<f8")), 1, memory=bytes(8)),
    "a field with too few parts": array(struct_spec(("a", None)), 1, memory=bytes(8)),
    "a structure of a strange size": array(struct_spec(itemsize=-1), 1),
    "a structure of a huge size": array(struct_spec(itemsize=2**62), 1),
    "a misaligned structure": array(struct_spec(("a", None, 1, "<f4"), aligned=True), 1, memory=bytes(8)),
    "a huge part": array(struct_spec(("a", None, 0, ("array", "<f8", (2**40, 2**40)))), 1, memory=bytes(8)),
    "a part with a strange shape": array(struct_spec(("a", None, 0, ("array", "<f8", (2.0,)))), 1, memory=bytes(8)),
    "a part as the whole": array(("array", "<f8", (1,)), 1, memory=bytes(8)),
    "an array as dtype": array(np.zeros(3), 1, memory=bytes(8)),
    # small values
    "a code for nothing": small("?", None),
    "no code": bytes((Tag.VALUE,)),
    **{f"a payload of no {code}": small(code, None) for code in "dtmlozrODFUpPsbng"},
    **{f"a payload of a bad {code}": small(code, "\0") for code in "dtmlozrODFUbng"},
    "a day that never was": small("d", "2021-02-29"),
    "a fold of three": small("t", ("01:00:00", 3, None)),
    "a time without end": small("l", (10**9, 0, 0)),
    "a time beyond C": small("l", (2**70, 0, 0)),
    "an offset of a day": small("o", (86_400_000_000, "UTC")),
    "a zone above": small("z", "../../../etc/passwd"),
    "a zone from the root": small("z", "/etc/passwd"),
    "a zone of a module": small("z", "os.path"),
    "a zone that is a folder": small("z", "America"),
    "a zone that is not there": small("z", "Mars/Olympus"),
    "a range without steps": small("r", (0, 1, 0)),
    "a fraction of nothing": small("F", (1, 0)),
    "a fraction of a bomb": small("F", ("1e999999999", 1)),
    "a fraction of a decimal bomb": small("F", (decimal.Decimal("1e999999999"), 1)),
    "a short UUID": small("U", b"123"),
    "a scalar of objects": small("g", ("|O", bytes(8))),
    "a scalar that is cut": small("g", ("<f8", bytes(7))),
    "a scalar of text": small("g", ("<U1", b"\xff" * 4)),
    "a scalar of many": small("g", (("array", "<f4", (2,)), bytes(8))),
    # dataclasses
    "a class of a module that is not loaded": dataclass("antigravity:X()"),
    "a class that is loaded": dataclass("os:_Environ()"),
    "a dataclass that is loaded": dataclass("hypothesis.control:BuildContext()"),
    "a class without a module": dataclass(""),
    "other fields": dataclass(f"{Plain.__module__}:Plain(value)", 1),
    "too few values": dataclass(f"{Plain.__module__}:Plain(value,other)", 1),
}


def refuse(data: bytes) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decode(data)
    cause = caught.value.__cause__
    assert cause is None or isinstance(cause, EXPECTED_CAUSES) or "no_such_attribute" in str(cause)
    assert len(str(caught.value)) < 700
    return caught.value


@pytest.mark.parametrize("data", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_bytes_are_refused(data):
    refuse(MAGIC + data)
    # Inside of other things they fare no better, and what is refused there is not what follows.
    refuse(MAGIC + head(Tag.LIST, 2) + value(1) + data)


@pytest.mark.parametrize("data", HOSTILE.values(), ids=list(HOSTILE))
def test_what_is_only_announced_takes_no_memory(data):
    def attempt() -> None:
        with pytest.raises(DecodeError):
            decode(MAGIC + data)

    attempt()  # what is imported on first use is not counted
    assert peak_nbytes(attempt) < 64 * 1024 + 4 * len(data)


def test_memory_grows_only_as_the_bytes_do():
    """An empty set is the smallest thing for what it takes: 9 bytes become some 220."""
    count = 20_000
    data = MAGIC + head(Tag.LIST, count) + head(Tag.SET, 0) * count
    assert peak_nbytes(lambda: decode(data)) < 40 * len(data)


def test_an_array_is_made_once():
    whole = np.zeros(1 << 20, "u1")
    data = encode(whole)
    for make in (lambda: decode(data), lambda: encode(whole)):
        assert peak_nbytes(make) < 1.1 * (1 << 20)


def peak_nbytes(function: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_nothing_named_by_bytes_is_imported():
    refuse(MAGIC + HOSTILE["a class of a module that is not loaded"])
    assert "antigravity" not in sys.modules


#: The beginnings of what may hold something.
LEVELS = {
    "list": head(Tag.LIST, 1),
    "tuple": head(Tag.TUPLE, 1),
    "set": head(Tag.SET, 1),
    "dict key": head(Tag.DICT, 1),
    "dict value": head(Tag.DICT, 1) + b"N",
    "small value": bytes((Tag.VALUE,)) + b"d",
    "array": bytes((Tag.ARRAY, 0)),
    "dataclass": body(encode(Plain(1)))[: -len(value(1) + b"N")],
}


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 100_000])
def test_nesting_ends_at_the_limit(level, levels):
    assert f"deeper than {MAX_DEPTH} levels" in str(refuse(MAGIC + level * levels + b"NNN"))


def test_bytes_that_follow_are_refused():
    assert "1 bytes follow" in str(refuse(encode(1) + b"x"))


@pytest.mark.parametrize("sample", SAMPLES, ids=range(len(SAMPLES)))
def test_no_part_of_an_object_is_an_object(sample):
    for end in range(len(sample)):
        refuse(sample[:end])


def check(data: bytes) -> None:
    """Decode; what comes out must be an object that travels again, and what does not must be a DecodeError."""
    try:
        found = decode(data)
    except DecodeError as error:
        cause = error.__cause__
    else:
        cause = None
        assert type(decode(encode(found))) is type(found)
    assert cause is None or isinstance(cause, EXPECTED_CAUSES)


@given(st.binary(max_size=200).map(MAGIC.__add__) | st.binary(max_size=200))
@settings(steady, max_examples=300)
def test_random_bytes_raise_only_codec_errors(data):
    check(data)


TAGS = st.sampled_from([bytes((byte,)) for byte in b"NTFidcIsyYltefmpqPQADXdtmlozrODFUpPsbng\0"])
COUNTS = st.integers(0, 9).map(lambda n: struct.pack("<Q", n))
WORDS = TAGS | COUNTS | st.sampled_from([value(1), value("<f8")])


@given(st.lists(WORDS, max_size=30).map(b"".join))
@settings(steady, max_examples=500)
def test_random_words_of_the_layout_raise_only_codec_errors(data):
    check(MAGIC + data)


@given(st.sampled_from(SAMPLES), st.data())
@settings(steady, max_examples=600)
def test_changed_bytes_raise_only_codec_errors(sample, data):
    changed = bytearray(sample)
    places = st.integers(len(MAGIC), len(sample) - 1)
    for at, flip in data.draw(st.lists(st.tuples(places, st.integers(0, 7)), min_size=1, max_size=4)):
        changed[at] ^= 1 << flip
    check(bytes(changed))


@given(st.sampled_from(SAMPLES), st.sampled_from(SAMPLES), st.data())
@settings(steady, max_examples=400)
def test_spliced_objects_raise_only_codec_errors(one, other, data):
    start, end = sorted(data.draw(st.tuples(*[st.integers(len(MAGIC), len(one))] * 2)))
    first, last = sorted(data.draw(st.tuples(*[st.integers(len(MAGIC), len(other))] * 2)))
    check(one[:start] + other[first:last] + one[end:])


class Gadget:
    """What a pickle of it does on loading tells that it was loaded."""

    def __init__(self, action: tuple[Any, ...]) -> None:
        self.action = action

    def __reduce__(self) -> tuple[Any, ...]:
        return self.action


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("call", ["mkdir", "eval", "setattr"])
def test_pickles_are_never_loaded(protocol, call, tmp_path):
    trace = tmp_path / "trace"
    actions: dict[str, tuple[Any, ...]] = {
        "mkdir": (os.mkdir, (str(trace),)),
        "eval": (eval, (f"__import__('os').mkdir({str(trace)!r})",)),
        "setattr": (setattr, (Gadget, "loaded", True)),
    }
    raw = pickle.dumps([1, Gadget(actions[call])], protocol)
    error = refuse(raw)
    assert protocol < 2 or "a pickle" in str(error)
    refuse(MAGIC + raw)
    assert decode(encode(raw)) == raw
    assert not trace.exists()
    assert not hasattr(Gadget, "loaded")


def test_an_encoded_object_never_looks_like_a_pickle():
    assert all(sample[:1] != pickle.PROTO and not sample[:1].isascii() for sample in SAMPLES)


def test_the_source_of_the_codec_uses_no_pickle_and_no_eval():
    import rankwise.codec

    for path in pathlib.Path(rankwise.codec.__file__).parent.glob("*.py"):
        words = path.read_text(encoding="utf-8")
        assert not any(word in words for word in ("import pickle", "eval(", "exec(", "np.load", "allow_pickle"))


@pytest.mark.parametrize("key", ["trap", "America/trap", "trap/inner", "Etc/__init__", "__init__", "zones"])
def test_a_zones_name_imports_no_module(key: str, tmp_path: pathlib.Path) -> None:
    """With a tzdata that has more in its folders than zones, as anything may be installed there."""
    zoneinfo_folder = tmp_path / "tzdata" / "zoneinfo"
    for folder in ("", "America", "Etc", "trap"):
        (zoneinfo_folder / folder).mkdir(parents=True, exist_ok=True)
        loud = "import builtins; builtins.trapped = True\n" if folder == "trap" else ""
        (zoneinfo_folder / folder / "__init__.py").write_text(loud)
    (tmp_path / "tzdata" / "__init__.py").touch()
    (tmp_path / "tzdata" / "zones").write_text("America/New_York\nEtc/UTC\n")
    for name in ("trap.py", "America/trap.py", "trap/inner.py"):
        (zoneinfo_folder / name).write_text("import builtins; builtins.trapped = True\n")
    call(refuse_a_zone, str(tmp_path), key, timeout_s=PATIENCE_S)


def refuse_a_zone(folder: str, key: str) -> None:
    assert "tzdata" not in sys.modules
    sys.path.insert(0, folder)
    zoneinfo.reset_tzpath([])
    before = set(sys.modules)
    with pytest.raises(DecodeError, match="that this process knows"):
        decode(MAGIC + small("z", key))
    assert not hasattr(builtins, "trapped")
    assert not {name for name in set(sys.modules) - before if name.startswith("tzdata.")}


def test_a_zone_of_the_package_tzdata_travels_where_the_system_has_none() -> None:
    call(bring_zones_back, timeout_s=PATIENCE_S)


def bring_zones_back() -> None:
    zoneinfo.reset_tzpath([])
    for name in ("Europe/Berlin", "UTC", "America/Argentina/Ushuaia"):
        assert decode(encode(zoneinfo.ZoneInfo(name))) is zoneinfo.ZoneInfo(name)


def nested(levels: int, wrap: Callable[[Any], Any]) -> np.dtype[Any]:
    dtype = np.dtype("f4")
    for _ in range(levels):
        dtype = np.dtype(wrap(dtype))
    return dtype


@pytest.mark.parametrize(
    "wrap",
    [lambda dtype: [("a", dtype)], lambda dtype: [("a", dtype, (1,))]],
    ids=["structures", "subarrays in structures"],
)
@pytest.mark.parametrize("levels", [1, 8, 20, 63, 100, 400, 700])
def test_structures_in_structures_travel_or_are_refused_in_words(levels: int, wrap: Callable[[Any], Any]) -> None:
    dtype = nested(levels, wrap)
    for obj in (np.zeros(2, dtype), dtype, np.zeros(1, dtype)[0], [{"x": np.zeros(1, dtype)}]):
        if levels <= 8:
            assert encode(decode(encode(obj))) == encode(obj)
            continue
        with pytest.raises(TypeError, match=r"nested deeper than 16 levels does not travel") as caught:
            encode(obj)
        assert len(str(caught.value)) < 500


MODULUS = sys.hash_info.modulus


def wide(number: int) -> int:
    return 8 * MODULUS * (number + 1)


#: What makes of each number another key with the same hash.
COLLIDING: dict[str, Callable[[int], Any]] = {
    "wide ints": wide,
    "negative wide ints": lambda number: -wide(number),
    "fractions": lambda number: fractions.Fraction(wide(number), 1),
    "decimals": lambda number: decimal.Decimal(wide(number)),
    "complex numbers": lambda number: complex(-1000003.0 * number, number),
    "tuples": lambda number: tuple(-1 - (number >> bit & 1) for bit in range(14)),  # -1 and -2 have the same
    "tuples of wide ints": lambda number: (wide(number),),
    "UUIDs": lambda number: uuid.UUID(int=wide(number)),
}


def some(tag: int, members: list[bytes]) -> bytes:
    return head(tag, len(members)) + b"".join(members)


def dict_of(keys: list[bytes]) -> bytes:
    return head(Tag.DICT, len(keys)) + b"".join(key + b"N" for key in keys)


def set_of(keys: list[bytes]) -> bytes:
    return some(Tag.SET, keys)


def walkers(bits: int = 16) -> list[bytes]:
    """Return ints that fill a dict of so many bits, of which the last walk along the slots that the others have taken.

    Once all bits of a hash are spent, a key at one slot goes on to five times its number and one.
    """
    slots, slot, chance = 1 << bits, 0, random.Random(1)
    row = []
    for _ in range(slots // 2):
        row.append(slot)
        slot = (5 * slot + 1) % slots
    taken = frozenset(row)
    found: set[int] = set()
    while len(found) < slots // 6 - 20:
        found.add(_walker(chance.choice(row), bits, taken, chance))
        found.discard(-1)
    return [value(number) for number in (*row, *found)]


def _walker(number: int, bits: int, taken: frozenset[int], chance: random.Random) -> int:
    """Add bits to a number, five by five, each of which leads to a slot that is taken; return -1 if none does."""
    slot = number
    for shift in range(5, 60, 5):
        at = bits + shift - 5  # of the bits that come into play by this shift
        for _ in range(8):
            wider = number | chance.randrange(32) << at if at < 55 else number
            then = (5 * slot + (wider >> shift) + 1) % (1 << bits)
            if then in taken:
                break
        else:
            return -1
        number, slot = wider, then
    return number


def frozensets(members: list[bytes], each: int, count: int) -> list[bytes]:
    """Return frozensets of so many of these members, which have equal hashes if those have."""
    of = itertools.islice(itertools.combinations(members, each), count)
    return [some(Tag.FROZENSET, list(chosen)) for chosen in of]


def colliding(make: Callable[[int], Any], count: int = 16_000) -> list[bytes]:
    keys = list(map(make, range(count)))
    assert len(set(map(hash, keys))) == 1, "they do not collide"
    return list(map(value, keys))


def of_fractions(each: int, count: int) -> list[bytes]:
    return frozensets(colliding(COLLIDING["fractions"], each + count), each, count)


def in_tuples(keys: list[bytes]) -> list[bytes]:
    return [some(Tag.TUPLE, [key]) for key in keys]


#: Keys that are costly in a dict or set, how many of those there are, and what makes one.
COSTLY: dict[str, tuple[Callable[[], list[bytes]], int, Callable[[list[bytes]], bytes]]] = {
    **{f"{name} in a dict": (partial(colliding, make), 1, dict_of) for name, make in COLLIDING.items()},
    **{f"{name} in a set": (partial(colliding, make), 1, set_of) for name, make in COLLIDING.items()},
    "ints that walk": (walkers, 8, dict_of),
    "frozensets": (lambda: of_fractions(40, 200), 1, set_of),
    "frozensets in tuples": (lambda: in_tuples(of_fractions(40, 200)), 1, dict_of),
    "frozensets of frozensets": (lambda: frozensets(of_fractions(10, 30), 15, 60), 1, set_of),
}


@pytest.mark.parametrize(("make", "times", "hold"), COSTLY.values(), ids=COSTLY)
def test_keys_take_at_most_ten_times_as_long_as_to_read_them_or_a_second(
    make: Callable[[], list[bytes]], times: int, hold: Callable[[list[bytes]], bytes]
) -> None:
    keys = make()
    read_s = seconds(some(Tag.LIST, [some(Tag.LIST, keys)] * times))
    held = some(Tag.LIST, [hold(keys)] * times)
    # Others on the machine only ever make it longer.
    assert any(seconds(held) < max(1.0, 10 * read_s) for _ in range(3))


def seconds(data: bytes) -> float:
    """Return how long it takes a processor to decode bytes, or to refuse them.

    What a collection of all that earlier tests have left takes is no part of it.
    """
    gc.disable()
    try:
        began_s = time.thread_time()
        with contextlib.suppress(DecodeError):
            decode(MAGIC + data)
        return time.thread_time() - began_s
    finally:
        gc.enable()


@pytest.mark.parametrize("make", COLLIDING.values(), ids=COLLIDING)
def test_hundreds_of_keys_with_one_hash_travel(make: Callable[[int], Any]) -> None:
    keys = list(map(make, range(500)))
    for obj in (dict.fromkeys(keys), set(keys), frozenset(keys), [dict.fromkeys(keys)] * 3):
        assert decode(encode(obj)) == obj


def test_keys_that_do_not_collide_may_be_many() -> None:
    keys = [*range(200_000), *(str(number) for number in range(50_000)), *((n, str(n)) for n in range(50_000))]
    assert decode(encode(dict.fromkeys(keys))) == dict.fromkeys(keys)
