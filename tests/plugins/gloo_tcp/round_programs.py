"""Long calls among three hosts and more, of which some ranks have the compiled parts between hosts and some do not."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import wire_programs

import rankwise as dist
from rankwise_gloo_tcp.protocol.flow import WINDOW_NBYTES

#: What the ranks of a host pass on at once, what ends within the first segment, and what takes several rounds.
_LENGTHS = (30_011, 120_001, 262_144, 1_000_003)
_ONE_WAY_NBYTES = 256 << 10
_DTYPES = (np.float32, np.float32, np.complex64, np.float64)


def some_in_python(ranks: list[int], program: str, *args: Any) -> Any:
    """Run one of these programs, or of `wire_programs`, on ranks of which some do without C what goes between hosts."""
    vars(wire_programs).setdefault(program, globals().get(program))
    return wire_programs.with_a_relay_in_python(ranks, program, *args)


def rounds() -> str:
    """Make long calls of each kind, and return what has come of them."""
    rank, size = wire_programs.begin()
    seen = hashlib.sha256()
    for place, (count, dtype) in enumerate(zip(_LENGTHS, _DTYPES, strict=True)):
        data = [_data(peer, count, dtype) for peer in range(size)]
        for found, expected in _reduced(rank, (place + 1) % size, data):
            assert np.allclose(found, expected, rtol=1e-3, atol=1e-3)
            seen.update(found)
        parts = [np.zeros(count - peer, dtype) for peer in range(size)]
        dist.all_gather(parts, data[rank][: count - rank].copy())
        assert all((part == each[: part.size]).all() for part, each in zip(parts, data, strict=True))
        found = [np.zeros(_share(peer, rank, count), dtype) for peer in range(size)]
        dist.all_to_all(found, [data[rank][: _share(rank, peer, count)].copy() for peer in range(size)])
        assert all((part == each[: part.size]).all() for part, each in zip(found, data, strict=True))
        for root in (place, size - 1):
            _there_and_back(rank, root, data)
    dist.destroy_process_group()
    return seen.hexdigest()


def one_way() -> int:
    """Send far more to one rank, and from there, than travels unasked; return how much was only offered."""
    rank, size = wire_programs.begin()
    outbox: Any = type(dist.group.WORLD.communicators()[0].engine.dispatcher.outbox)  # type: ignore[union-attr, attr-defined]
    offer, offered = outbox.offer, []
    outbox.offer = lambda *args: (offered.append(1), offer(*args))
    array = np.full(_ONE_WAY_NBYTES, rank, np.uint8)
    parts = [np.zeros_like(array) for _ in range(size)]
    for move in (dist.gather, dist.scatter):  # one after the other, as what goes takes credit along for what comes
        for _ in range(3 * WINDOW_NBYTES // _ONE_WAY_NBYTES):
            move(array, parts if rank == 0 else None, 0)
    outbox.offer = offer
    assert (array == rank).all()
    dist.destroy_process_group()
    return len(offered)


def _data(rank: int, count: int, dtype: Any) -> Any:
    """Return what a rank has: numbers whose sum depends on the order in which they are added."""
    return (np.random.default_rng(rank).integers(-4, 4, count) / 3).astype(dtype)


def _share(sender: int, receiver: int, count: int) -> int:
    """Return how much one rank has for another: all, some or nothing."""
    return count * ((sender + 2 * receiver) % 4) // 3


def _there_and_back(rank: int, root: int, data: list[Any]) -> None:
    """Gather what ranks have of their data, which may be nothing, at a root, and scatter it."""
    counts = [_share(peer, 1, data[0].size) for peer in range(len(data))]
    mine, back = data[rank][: counts[rank]].copy(), np.zeros(counts[rank], data[0].dtype)
    parts = [np.zeros(count, data[0].dtype) for count in counts] if rank == root else None
    dist.gather(mine, parts, root)
    if parts is not None:
        assert all((part == each[: part.size]).all() for part, each in zip(parts, data, strict=True))
    dist.scatter(back, parts, root)
    assert (back == mine).all()


def _reduced(rank: int, root: int, data: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Return what has come of a rank's calls, and what should have."""
    size = len(data)
    op = dist.ReduceOp.AVG if data[0].dtype == np.float64 else dist.ReduceOp.SUM
    total = sum(data) / (size if op == dist.ReduceOp.AVG else 1)
    arrays = [data[rank].copy() for _ in range(4)]
    dist.all_reduce(arrays[0], op)
    dist.reduce(arrays[1], root, op)
    dist.broadcast(arrays[2], root)
    dist.reduce_scatter(arrays[3], [data[rank].copy() for _ in range(size)], op)
    yield from zip(arrays, (total, total if rank == root else data[rank], data[root], total), strict=True)


def again_and_again() -> set[str]:
    """Make long calls of the same kinds on other arrays each time, in place and not, in one array and in many.

    Return which C has carried out as a whole.
    """
    rank, size = wire_programs.begin()
    count = 130_001
    for turn in range(4):
        data = [_data(peer + turn * size, count, np.float32) for peer in range(size)]
        total = sum(data)
        for gathered in _gathered(data[rank], rank, size):
            assert (gathered == np.stack(data)).all()
        for scattered in _scattered(data[rank], rank, size):
            assert np.allclose(scattered, total, rtol=1e-3, atol=1e-3)
        for traded in _traded(data[rank], size):
            assert all((part == each[: part.size]).all() for part, each in zip(traded, data, strict=True))
        arrays = [data[rank].copy() for _ in range(3)]
        works = [dist.all_reduce(array, async_op=True) for array in arrays[:2]]
        for work in works:
            assert work is not None
            work.wait()
        dist.all_reduce(arrays[2], timeout=20)
        assert all((array == arrays[0]).all() for array in arrays)
        assert np.allclose(arrays[0], total, rtol=1e-3, atol=1e-3)
        for root in range(size):
            array = data[rank].copy()
            dist.broadcast(array, root)
            assert (array == data[root]).all()
            dist.reduce(array, root, dist.ReduceOp.MAX)
            assert (array == data[root]).all()
            parts = [np.zeros_like(array) for _ in range(size)] if rank == root else None
            if parts and turn % 2:
                parts[root] = array  # in place
            dist.gather(array, parts, root)
            assert all((part == data[root]).all() for part in parts or [])
            if parts:
                parts = [part * each for each, part in enumerate(parts)]
            dist.scatter(array, parts, root)
            assert (array == data[root] * rank).all()
    kinds = dist.group.WORLD.communicators()[0].kinds.values()
    in_c = {kind.fingerprint.op for kind in kinds if getattr(kind, "program", None) is not None}
    dist.destroy_process_group()
    return in_c


def _gathered(mine: Any, rank: int, size: int) -> Iterator[Any]:
    """Return what has come of an `all_gather`, in each way in which arrays may be given."""
    parts = [np.zeros_like(mine) for _ in range(size)]
    dist.all_gather(parts, mine)
    yield np.stack(parts)
    parts = [np.zeros_like(mine) for _ in range(size)]
    parts[rank][:] = mine
    dist.all_gather(parts, parts[rank])
    yield np.stack(parts)
    whole = np.zeros((size, mine.size), mine.dtype)
    dist.all_gather_single(whole, mine)
    yield whole
    whole = np.zeros((size, mine.size), mine.dtype)
    whole[rank] = mine
    dist.all_gather_single(whole, whole[rank])
    yield whole


def _scattered(mine: Any, rank: int, size: int) -> Iterator[Any]:
    """Return what has come of a `reduce_scatter` of the same part for everyone, likewise."""
    found, parts = np.zeros_like(mine), [mine.copy() for _ in range(size)]
    dist.reduce_scatter(found, parts)
    assert all((part == mine).all() for part in parts)
    yield found
    dist.reduce_scatter(parts[rank], parts)
    yield parts[rank]
    whole = np.stack([mine] * size)
    dist.reduce_scatter_single(whole[rank], whole)
    yield whole[rank]


def _traded(mine: Any, size: int) -> Iterator[Any]:
    """Return what has come of an `all_to_all` of the same part for everyone, likewise."""
    parts = [np.zeros_like(mine) for _ in range(size)]
    dist.all_to_all(parts, [mine.copy() for _ in range(size)])
    yield parts
    whole = np.zeros((size, mine.size), mine.dtype)
    dist.all_to_all_single(whole, np.stack([mine] * size))
    yield whole


def out_of_sight(rank: int) -> list[float]:
    """Let one rank be unable to read the memory of the other of its host in a long call; return what has come."""
    vars(import_module("rankwise_gloo_tcp.board.board"))["FETCH_FROM_NBYTES"] = 1 << 20
    if int(os.environ["RANK"]) == rank:
        with subprocess.Popen(["true"]) as ended:
            pass
        board = vars(import_module("rankwise_gloo_tcp.board.native_board"))["NativeBoard"]
        learn = board.may_read
        board.may_read = lambda board, pids, compiled: learn(board, [ended.pid] * len(pids), compiled)
    here, size = wire_programs.begin()
    parts = [np.zeros(600_000, np.float32) for _ in range(size)]
    dist.all_gather(parts, np.full(600_000, here + 1, np.float32))
    return [float(part.mean()) for part in parts]


def refused() -> list[str]:
    """Hand C what it must not take, and return what it has taken all the same."""
    wire_programs.begin()
    strategy: Any = dist.group.WORLD.communicators()[0].strategy
    found = [
        *(
            name
            for name, given in _wrong_exchanges(strategy.hosts).items()
            if _takes(_wire_of(strategy).exchange, given)
        ),
        *(name for name, given in _wrong_programs(strategy).items() if _takes(strategy.calls.program, given)),
    ]
    if not _takes(strategy.calls.program, ((_ARRAY,), (), [_COPY] * 32)):
        found.append("refused what is right")
    dist.destroy_process_group()
    return found


_ARRAY = np.zeros(40_000, np.float32)
_COPY = "copy", (_ARRAY[:9], _ARRAY[9:18])


def _wire_of(strategy: Any) -> Any:
    return strategy._wires.among(strategy.hosts.across)


def _takes(function: Any, given: tuple[Any, ...]) -> bool:
    """Tell whether C takes something; it may also raise."""
    try:
        return bool(function(*given))
    except (TypeError, ValueError, AttributeError):
        return False


def _wrong_exchanges(hosts: Any) -> dict[str, tuple[Any, ...]]:
    """Return exchanges that none of the ranks may begin, or they would wait for each other."""
    size, here, other = len(hosts.ranks), hosts.here, (hosts.here + 1) % len(hosts.ranks)

    def lanes(**arrays: Any) -> tuple[Any, ...]:
        return tuple(arrays.get({here: "mine", other: "theirs"}.get(host, "")) for host in range(size))

    nothing, good, frozen = lanes(), lanes(theirs=_ARRAY), _ARRAY.copy()
    frozen.flags.writeable = False
    segment = 1 << 18
    return {
        "too few": (good[:-1], nothing, None, segment, 1.0),
        "to itself": (lanes(mine=_ARRAY), nothing, None, segment, 1.0),
        "nothing": (nothing, nothing, None, segment, 1.0),
        "a list": (list(good), nothing, None, segment, 1.0),
        "with gaps": (lanes(theirs=_ARRAY[::2]), nothing, None, segment, 1.0),
        "no array": (lanes(theirs=b"12345678"), nothing, None, segment, 1.0),
        "read only": (nothing, lanes(theirs=frozen), None, segment, 1.0),
        "unlike": (good, lanes(theirs=np.zeros(40_000)), None, segment, 1.0),
        "unknown op": (nothing, good, "MODULO", segment, 1.0),
        "unknown dtype": (nothing, lanes(theirs=np.zeros(99, "M8[s]")), "SUM", segment, 1.0),
        "short segments": (good, nothing, None, 8, 1.0),
        "segments beyond the room": (nothing, good, "SUM", 1 << 30, 1.0),
    }


def _wrong_programs(strategy: Any) -> dict[str, tuple[Any, ...]]:
    arrays, elsewhere = (_ARRAY,), np.zeros(9, np.float32)
    kind = SimpleNamespace(about=0)
    wire, here = _wire_of(strategy), strategy.hosts.here
    sent = tuple(None if host == here else elsewhere for host in range(3))
    outside = {
        "copy": (_ARRAY[:9], elsewhere),
        "average": (elsewhere, 2),
        "transfer": (wire, sent, (None,) * 3, None, 1 << 18),
        "collective": (kind, "broadcast", (elsewhere, 0)),
    }
    return {
        **{f"{name} elsewhere": (arrays, (), [(name, given)]) for name, given in outside.items()},
        "too many steps": (arrays, (), [_COPY] * 33),
        "an unknown step": (arrays, (), [("jump", (_ARRAY,))]),
        "no step": (arrays, (), [None]),
        "no arrays": ((b"12345678",), (), [_COPY]),
        "copies of two lengths": (arrays, (), [("copy", (_ARRAY[:8], _ARRAY[9:18]))]),
        "an average over nobody": (arrays, (), [("average", (_ARRAY, 0))]),
        "an average of bytes": ((np.zeros(9, np.uint8),), (), [("average", (np.zeros(9, np.uint8), 2))]),
        "a kind without a digest": (arrays, (), [("collective", (None, "all_reduce", (_ARRAY, dist.ReduceOp.SUM)))]),
        "an operation that is none": (arrays, (), [("collective", (kind, "scan", (_ARRAY,)))]),
        "another wire": (arrays, (), [("transfer", (None, _ARRAY, "SUM"))]),
        "a reduction of two among three": (arrays, (), [("transfer", (wire, _ARRAY, "SUM"))]),
    }
