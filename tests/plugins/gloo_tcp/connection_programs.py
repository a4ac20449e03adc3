"""What ranks do in `test_connections.py`: groups whose ranks have several connections to each other."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import programs
from failing import Heard, heard
from programs import end, left_by, until

import rankwise as dist
from rankwise.groups.world import current
from rankwise_gloo_tcp.collectives.streams import LEAST_NBYTES, Spread
from rankwise_gloo_tcp.setup import cards

VARIABLE = "RANKWISE_GLOO_CONNECTIONS"
OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
#: A little, about a piece, and several pieces; of the last only some ops.
COUNTS = (1, 600_011, 2_400_011)
LARGE = 2_097_155


def begin(timeout_s: float = 30.0) -> tuple[int, int]:
    """Begin as a rank of a host of as many as the environment says."""
    host = f"host {int(os.environ['RANK']) // int(os.environ['RANKS_OF_A_HOST'])}"
    cards.machine = lambda: (host, host)
    return programs.begin(timeout_s)


def engine_of(group: Any = None) -> Any:
    """Return the engine of a group."""
    return (group or current().default).communicators()[0].engine


def moved_over(engine: Any) -> list[int]:
    """Return how much has gone and come over the first connections to all peers, over the second, and so on."""
    size = engine.size
    strands = [engine.peers.all[begin : begin + size] for begin in range(0, len(engine.peers.all), size)]
    return [sum(peer.connection.moved_nbytes for peer in strand if peer.connection) for strand in strands]


def group_of(connections: int, **options: Any) -> Any:
    """Make a group whose pairs have so many connections."""
    os.environ[VARIABLE] = str(connections)
    group = dist.new_group(**options)
    dist.barrier(group=group)
    return group


def _results(rank: int, size: int, count: int, group: Any) -> Iterator[tuple[str, Any]]:
    """Make all long calls, and return each with what this rank has got."""
    random = np.random.default_rng(rank)
    floats, numbers = random.normal(1, 0.1, count), random.integers(0, 1 << 40, count)
    whole = [floats.astype(np.float32), floats.astype(np.float16), numbers]
    for op in OPS if count < COUNTS[-1] else OPS[:2]:
        for mine in whole[2:] if op.startswith("B") else whole:
            how = dist.ReduceOp.PREMUL_SUM(2 + rank) if op == "PREMUL_SUM" else getattr(dist.ReduceOp, op)
            if op in ("AVG", "PREMUL_SUM") and mine.dtype.kind == "i":
                continue
            told = f"{op} {mine.dtype} {count}"
            a = mine.copy()
            dist.all_reduce(a, how, group=group)
            yield f"all_reduce {told}", a
            a = mine.copy()
            dist.reduce(a, size - 1, how, group=group)
            yield f"reduce {told}", a
            parts = [np.roll(mine, peer)[: count // 2 + peer] for peer in range(size)]
            a = np.empty_like(parts[rank])
            dist.reduce_scatter(a, parts, how, group=group)
            yield f"reduce_scatter {told}", a
    for mine in whole[1:]:
        a = mine.copy()
        dist.broadcast(a, size - 1, group=group)
        yield "broadcast", a
        outs = [np.empty(count + peer, mine.dtype) for peer in range(size)]
        dist.all_gather(outs, np.resize(mine, count + rank), group=group)
        yield "all_gather", np.concatenate(outs)
        ins = [np.roll(mine, peer) for peer in range(size)]
        outs = [np.empty_like(mine) for _ in range(size)]
        dist.all_to_all(outs, ins, group=group)
        yield "all_to_all", np.concatenate(outs)
        dist.gather(mine, outs if rank == 0 else None, 0, group=group)
        yield "gather", np.concatenate(outs)
        a = np.empty_like(mine)
        dist.scatter(a, ins if rank == size - 1 else None, size - 1, group=group)
        yield "scatter", a


def as_with_one(connections: int, counts: tuple[int, ...] = COUNTS) -> list[int]:
    """Compare all that long calls bring with what they bring over one connection; return what each has moved."""
    rank, size = begin()
    one, several = group_of(1), group_of(connections)
    for count in counts:
        both = zip(_results(rank, size, count, one), _results(rank, size, count, several), strict=True)
        for (told, expected), (_, found) in both:
            assert expected.tobytes() == found.tobytes(), (told, count)
    assert len(engine_of(one).peers.all) == size
    moved = moved_over(engine_of(several))
    end()
    return moved


def moved_by_one_call(connections: int) -> list[int]:
    """Return how much each connection has moved for one reduction, once a small one has made the first of them."""
    begin()
    group = group_of(connections)
    engine, a = engine_of(group), np.ones(LARGE, np.float32)
    dist.all_reduce(a[:10], group=group)
    dist.barrier(group=group)
    assert not any(moved_over(engine)[1:])
    before = sum(engine.moved_nbytes().values()), moved_over(engine)
    dist.all_reduce(a, group=group)
    after = sum(engine.moved_nbytes().values()), moved_over(engine)
    dist.barrier()
    end()
    moved = [now - then for now, then in zip(after[1], before[1], strict=True)]
    assert after[0] - before[0] == sum(moved)
    return moved


def small_calls_stay_on_one(connections: int) -> list[int]:
    """Return how much each connection has moved for messages and small calls."""
    rank, size = begin()
    group = group_of(connections)
    a = np.ones(LEAST_NBYTES // 4 - 1, np.float32)
    dist.all_reduce(a, group=group)
    sending = dist.isend(np.ones(LARGE), (rank + 1) % size, group=group)
    dist.recv(np.ones(LARGE), (rank - 1) % size, group=group)
    sending.wait()
    moved = moved_over(engine_of(group))
    dist.barrier()
    end()
    return moved


def refused(values: list[str]) -> Heard | str:
    """Return what a rank hears that begins with one of these values, by its rank."""
    os.environ[VARIABLE] = values[int(os.environ["RANK"])]
    try:
        return heard(begin, 10.0)
    except ValueError as error:
        return str(error)


def of_one_host() -> tuple[int, list[int]]:
    """Return how many peers the engine of one host has, and what a long call has moved by sockets."""
    begin()
    dist.all_reduce(np.ones(LARGE, np.float32))
    found = len(engine_of().peers.all), moved_over(engine_of())
    dist.barrier()
    end()
    return found


@contextmanager
def _at_the_third_message(deed: Callable[[], object]) -> Iterator[None]:
    """Have this rank do something before its third long message of a call."""
    in_parts, left = Spread._in_parts, [2]

    def instead(self: Spread, *args: Any) -> Any:
        if not left[0]:
            deed()
        left[0] -= 1
        return in_parts(self, *args)

    Spread._in_parts = instead  # type: ignore[method-assign]
    try:
        yield
    finally:
        Spread._in_parts = in_parts  # type: ignore[method-assign]


def death_of(victim: int, warm: bool) -> Heard:
    """Let a rank die when some of its messages have gone; return what the others hear.

    Args:
        victim: The rank.
        warm: Whether there are connections then.
    """
    rank, _ = begin()
    a = np.ones(LARGE if warm else 1, np.float32)
    dist.all_reduce(a)
    a = np.ones(LARGE, np.float32)

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if rank == victim:
        with _at_the_third_message(die):
            dist.all_reduce(a)
    told = heard(lambda: [dist.all_reduce(a) for _ in range(2)])  # the first may need no more of it
    end()
    return told


def too_late() -> Heard:
    """Let the last rank stand still until the others have given up; return what each hears."""
    rank, size = begin()
    group = dist.new_group(timeout=1.0)
    a = np.ones(LARGE, np.float32)
    dist.all_reduce(a, group=group, timeout=20.0)
    comm = group.communicators()[0]
    if rank < size - 1:
        told = heard(dist.all_reduce, a, group=group)
    else:
        with _at_the_third_message(lambda: until(lambda: comm.failure is not None)):
            told = heard(dist.all_reduce, a, group=group, timeout=20.0)
    dist.barrier()
    end()
    return told


def interrupted() -> str:
    """Interrupt rank 0 while long messages are under way; return what each hears."""
    rank, _ = begin()
    a = np.ones(LARGE, np.float32)
    dist.all_reduce(a)
    if rank == 0:
        with _at_the_third_message(lambda: signal.raise_signal(signal.SIGINT)):
            try:
                dist.all_reduce(a)
            except KeyboardInterrupt as error:
                found = repr(error)
            end()
            return found
    told = heard(lambda: [dist.all_reduce(a) for _ in range(2)])
    end()
    return told[1]


def one_is_cut() -> Heard:
    """Cut one connection of several, and return what a call that needs it says."""
    rank, size = begin()
    a = np.ones(LARGE, np.float32)
    dist.all_reduce(a)
    dist.barrier()
    if rank == 0:
        last = engine_of().peers[2 * size + 1].connection
        with socket.socket(fileno=os.dup(last.fd)) as sock:
            sock.shutdown(socket.SHUT_RDWR)
    told = heard(dist.all_reduce, a)
    end()
    return told


def aborted() -> Heard:
    """Give a group up whose connections are busy; return what its members hear."""
    rank, _ = begin()
    group = dist.new_group()
    a = np.ones(LARGE, np.float32)
    dist.all_reduce(a, group=group)
    deed: Callable[[], object] = (lambda: group.abort()) if rank == 0 else (lambda: None)
    with _at_the_third_message(deed):
        told = heard(lambda: [dist.all_reduce(a, group=group) for _ in range(2)])
    dist.barrier()
    end()
    return told


def what_is_left() -> list[list[int]]:
    """Return how many threads and descriptors there are before some groups are used, and after."""

    def use() -> None:
        for async_op in (False, True):
            work = dist.all_reduce(np.ones(LARGE, np.float32), async_op=async_op)
            if work is not None:
                work.wait()
        assert all(moved_over(engine_of()))

    return [[len(each) for each in stays] for stays in left_by(use)]


def in_a_child() -> int:
    """Return how many of the sockets of a group a child of this process has open, which it must not use."""
    begin()
    dist.all_reduce(np.ones(LARGE, np.float32))
    fds = [peer.connection.fd for peer in engine_of().peers.all if peer.connection]
    assert len(fds) == 4 * (dist.get_world_size() - 1)
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writer, bytes([sum(os.path.exists(f"/proc/self/fd/{fd}") for fd in fds)]))
        os._exit(0)
    os.close(writer)
    found = os.read(reader, 1)[0]
    os.close(reader)
    os.waitpid(pid, 0)
    dist.all_reduce(np.ones(LARGE, np.float32))
    end()
    return found
