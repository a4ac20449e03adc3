"""What the ranks of the tests run."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from failing import error_of, heard

import rankwise as dist

T = TypeVar("T")

BIG = 6 << 20  # well beyond what sockets hold


def begin(timeout_s: float = 30.0) -> tuple[int, int]:
    if not dist.is_initialized():
        where = os.environ.get("MEET_AT")  # a file, where any rank may die; else as the launcher says
        numbers = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])} if where else {}
        dist.init_process_group("gloo", init_method=where, timeout=timeout_s, **numbers)
    return dist.get_rank(), dist.get_world_size()


def meeting_at(where: str, function: Callable[..., T], *args: Any) -> T:
    """Run one of these programs with a meeting place of its own."""
    os.environ["MEET_AT"] = where
    return function(*args)


def end() -> None:
    dist.destroy_process_group()


def around(mine: Any, theirs: Any, tag: int = 0) -> None:
    """Send to the next rank, and receive from the one before."""
    rank, size = dist.get_rank(), dist.get_world_size()
    sending = dist.isend(mine, (rank + 1) % size, tag=tag)
    assert dist.recv(theirs, (rank - 1) % size, tag=tag) == (rank - 1) % size
    sending.wait()


def wait_for(works: Iterable[Any]) -> None:
    for work in works:
        work.wait()


def works_as_before(count: int = 1000) -> None:
    """Show that all ranks still reduce together."""
    total = np.ones(count)
    dist.all_reduce(total)
    assert (total == dist.get_world_size()).all()


def until(condition: Callable[[], object], step: Callable[[], object] = lambda: time.sleep(0.001)) -> None:
    """Do something again and again until a condition holds."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        step()


def failures(jobs: Iterable[tuple[Any, ...]]) -> list[BaseException]:
    """Call functions, each with its arguments on a thread of its own, and return what they raise."""
    found: list[BaseException] = []

    def run(function: Callable[..., object], *args: Any) -> None:
        try:
            function(*args)
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=run, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass
    return sorted(found)


def big_messages_both_ways() -> None:
    rank, size = begin()
    theirs = np.empty(BIG, np.uint8)
    around(np.full(BIG, rank, np.uint8), theirs)
    assert (theirs == (rank - 1) % size).all()
    end()


def small_messages_outlive_their_sender() -> None:
    """Leave before anybody has asked for what was sent, more than is confirmed at once."""
    rank, _ = begin()
    count, nbytes = 300, 10_000
    dist.barrier()
    if rank == 0:
        for i in range(count):
            dist.send(np.full(nbytes, i % 251, np.uint8), 1)
    elif rank == 1:
        engine: Any = dist.group.WORLD.communicators()[0].engine
        until(lambda: engine.peers[0].gone is not None, engine.look)
        room = np.empty(nbytes, np.uint8)
        for i in range(count):
            dist.recv(room, 0)
            assert (room == i % 251).all(), i
    end()


def of_all_kinds() -> str:
    """Make some calls of each kind, small and large."""
    rank, size = begin()
    for count in (1, 300_000):
        array = np.full(count, rank + 1.0)
        dist.all_reduce(array)
        assert (array == size * (size + 1) / 2).all()
        dist.all_reduce(array, async_op=True).wait()  # type: ignore[union-attr]
        dist.broadcast(array, 1)
        around(array, np.empty_like(array))
        dist.barrier()
    end()
    return "right"


def order_and_tags() -> list[list[int]]:
    rank, size = begin()
    got: list[list[int]] = []
    if rank == 0:
        wait_for([dist.isend(np.array([i]), peer, tag=i % 3) for i in range(60) for peer in range(1, size)])
    else:
        for tag in (2, 0, 1):
            numbers = np.empty(20, int)
            for i in range(20):
                dist.recv(numbers[i : i + 1], 0, tag=tag)
            got.append(numbers.tolist())
    end()
    return got


def many_unexpected(count: int, nbytes: int) -> None:
    rank, _ = begin()
    if rank == 0:
        works = [dist.isend(np.full(nbytes, i % 251, np.uint8), 1) for i in range(count)]
        dist.barrier()
        wait_for(works)
    else:
        dist.barrier()
        if rank == 1:
            a = np.empty(nbytes, np.uint8)
            for i in range(count):
                dist.recv(a, 0)
                assert (a == i % 251).all(), i
    end()


def from_anyone(nbytes: int) -> list[int]:
    rank, size = begin()
    sources = []
    if rank == 0:
        for _ in range(3 * (size - 1)):
            a = np.empty(nbytes, np.uint8)
            source = dist.recv(a)
            assert (a == source).all()
            sources.append(source)
    else:
        for _ in range(3):
            dist.send(np.full(nbytes, rank, np.uint8), 0)
    end()
    return sources


def too_long(nbytes: int, posted_first: bool) -> str | None:
    rank, _ = begin()
    room = np.full(nbytes, 7, np.uint8)
    work = dist.irecv(room[: nbytes // 2], 0, tag=5) if posted_first and rank == 1 else None
    if posted_first:
        dist.barrier()
    error = None
    if rank == 0:
        error = error_of(lambda: dist.send(np.zeros(nbytes, np.uint8), 1, tag=5))
    elif rank == 1:
        error = error_of(lambda: dist.recv(room[: nbytes // 2], 0, tag=5) if work is None else work.wait())
    assert (room[nbytes // 2 :] == 7).all()
    works_as_before()
    end()
    return None if error is None else str(error)


def withdraw() -> None:
    rank, size = begin()
    first, second = np.zeros(4), np.zeros(4)
    work = dist.irecv(first, (rank - 1) % size)
    assert work.cancel()
    assert not work.cancel()
    dist.barrier()  # nobody sends before all have withdrawn
    around(np.ones(4), second)
    assert first.sum() == 0
    assert second.sum() == 4
    end()


def overlapping_groups() -> None:
    rank, size = begin()
    groups = [dist.new_group([0, 1]), dist.new_group([2, 1]), dist.new_group([0, 1, 2]), None]
    for turn in range(10):
        works = []
        arrays = []
        for index, group in enumerate(groups):
            if group is dist.GroupMember.NON_GROUP_MEMBER:
                continue
            array = np.full(2000 * (index + 1), rank + 10.0 * index)
            arrays.append((array, group, index))
            works.append(dist.all_reduce(array, group=group, async_op=True))
        wait_for(works)
        for array, group, index in arrays:
            ranks = dist.get_process_group_ranks(group) if group is not None else range(size)
            assert (array == sum(r + 10.0 * index for r in ranks)).all(), (turn, index)
    end()


def several_threads() -> None:
    begin()

    def talk(tag: int) -> None:
        for i in range(30):
            a = np.empty(3000, np.int64)
            around(np.full(3000, 100 * tag + i), a, tag)
            assert (a == 100 * tag + i).all()

    def reduce() -> None:
        for _ in range(20):
            works_as_before()

    for error in failures([(reduce,), *((talk, tag) for tag in range(1, 5))]):
        raise error
    end()


def progress_while_computing() -> float:
    """Return for how long rank 1, which never waits, kept rank 0 from finishing its send."""
    rank, _ = begin()
    waited = 0.0
    big = np.ones(BIG, np.uint8)
    dist.barrier()
    if rank == 0:
        start = time.perf_counter()
        dist.send(big, 1)
        waited = time.perf_counter() - start
    elif rank == 1:
        work = dist.irecv(big, 0)
        enough = time.perf_counter() + 2.0
        while time.perf_counter() < enough and not work.is_completed():
            np.linalg.norm(np.ones(20000))
        assert work.is_completed()
    end()
    return waited


def nothing_left() -> None:
    def use() -> None:
        wait_for([dist.all_reduce(np.ones(10), async_op=True)])
        around(np.zeros(1), np.zeros(1))

    before, after = left_by(use)
    assert [len(each) for each in after] == [len(each) for each in before], (before, after)


def left_by(use: Callable[[], object]) -> tuple[Any, Any]:
    """Return the threads and descriptors of this process before some groups are used, and after."""
    begin()
    end()
    before = _what_stays()
    for _ in range(5):
        begin()
        use()
        end()
    return before, _what_stays()


def _what_stays() -> tuple[list[str], list[str]]:
    """Return the names of threads, and descriptors, once those threads have ended that do so after the last group."""
    passing = {"rankwise meeting", "rankwise gloo idle"}
    until(lambda: passing.isdisjoint(thread.name for thread in threading.enumerate()))
    return sorted(thread.name for thread in threading.enumerate()), _descriptors()


def descriptors_of_groups(count: int) -> int:
    """Return how many descriptors each of some groups takes."""
    begin()
    dist.new_group()
    before = len(_descriptors())
    groups = [dist.new_group() for _ in range(count)]
    taken = (len(_descriptors()) - before) // count  # the process may have got one more meanwhile
    for group in groups:
        a = np.ones(1)
        dist.all_reduce(a, group=group)
        assert a[0] == dist.get_world_size()
    end()
    return taken


def somebody_dies(op: str, victim: int) -> tuple[str, int]:
    rank, _ = begin()
    a = np.ones(BIG // 8)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(a),
        "barrier": dist.barrier,
        "small": lambda: dist.all_reduce(a[:10]),
        "async": lambda: wait_for([dist.all_reduce(a, async_op=True)]),
        "recv": lambda: dist.recv(a, victim),
    }
    dist.all_reduce(a)
    if rank == victim:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            calls[op]()
    except dist.PeerDiedError as error:
        return str(error), error.rank


def _said_by(call: Callable[[], object]) -> str:
    return str(error_of(call))


def abort_from_another_thread() -> list[str]:
    rank, size = begin()
    dist.barrier()
    if rank == 0:
        threading.Timer(0.2, _abort).start()
    found = [_said_by(lambda: dist.recv(np.zeros(9), (rank + 1) % size)), _said_by(dist.barrier)]
    end()
    return found


def abort_before_a_connection() -> tuple[str, float]:
    """Rank 0 receives on a group that rank 1 has given up before the two were connected."""
    rank, _ = begin()
    group = dist.new_group(timeout=20)
    if rank == 1:
        group.abort("on purpose")
    _, said, took_s = heard(dist.recv, np.zeros(9), 1 - rank, group=group)
    dist.barrier()
    end()
    return said, took_s


def _abort() -> None:
    dist.group.WORLD.abort("on purpose")


def late() -> tuple[str, float]:
    rank, _ = begin()
    dist.barrier()
    message, took = "", 0.0
    if rank == 0:
        _, message, took = heard(dist.recv, np.zeros(1), 1, timeout=0.3)
    dist.barrier()
    a = np.zeros(1)
    # The receive that timed out must not swallow this.
    if rank == 1:
        dist.send(np.ones(1), 0)
    elif rank == 0:
        dist.recv(a, 1)
        assert a[0] == 1
    end()
    return message, took


def mismatch() -> tuple[str, tuple[int, ...]]:
    rank, _ = begin()
    error: Any = error_of(lambda: dist.broadcast(np.zeros(5), 0) if rank == 1 else dist.all_reduce(np.zeros(5)))
    found = str(error), error.odd_ranks
    works_as_before()
    end()
    return found


def reductions_agree(seed: int) -> list[Any]:
    rank, _ = begin()
    rng = np.random.default_rng(seed + rank)
    digests = []
    for count in (0, 1, 3, 1000, 70_000, 700_000):
        for dtype in (np.float32, np.float16):
            a = rng.normal(size=count).astype(dtype)
            dist.all_reduce(a)
            digests.append(a.tobytes()[:100_000])
    end()
    return digests


def stand_at_the_door(strangers: int) -> int:
    """Let rank 0 be called by strangers while all ranks work; return how many of them were let in.

    Where all ranks write to each other's memory there is no door, so here they do not.
    """
    from rankwise_gloo_tcp.setup import joining_board

    joining_board.MAX_RANKS = 0
    rank, _ = begin()
    welcomed = 0
    if rank == 0:
        welcomed = _call_in(_engine(), strangers)
    else:
        dist.barrier()
    for _ in range(20):
        works_as_before()
    around(np.ones(1), np.zeros(1))  # a rank that has not connected yet still comes in
    end()
    return welcomed


def _engine() -> Any:
    from rankwise.groups.world import current

    return current().default.communicators()[0].engine


def _call_in(engine: Any, count: int) -> int:
    where = engine.peers.acceptor.listeners[-1].getsockname()
    family = socket.AF_UNIX if isinstance(where, bytes) else socket.AF_INET
    hello = struct.Struct("<4sIII16s")
    first_words = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(200),
        hello.pack(b"RKW2", 1, 0, 3, bytes(16)) + os.urandom(32),  # rank 1, without the key
        hello.pack(b"RKW2", 0, 0, 3, bytes(16)),  # this very rank
        hello.pack(b"RKW2", 7, 0, 3, bytes(16)),  # no such rank
        hello.pack(b"RKW2", 1, 0, 3, bytes(16))[:9],
    ]
    calls = []
    for index in range(count):
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect(where)
        with contextlib.suppress(OSError):
            sock.send(first_words[index % len(first_words)])
        calls.append(sock)
    dist.barrier()  # moves the handshakes
    moved = time.perf_counter() + 0.5
    until(lambda: time.perf_counter() > moved, engine.look)
    welcomed = 0
    for sock in calls:
        with contextlib.suppress(OSError):
            welcomed += sock.recv(200)[48:] == b"W"
        sock.close()
    return welcomed


def with_a_secret() -> bool:
    """Return whether the frames of this rank's TCP connections are guarded."""
    big_messages_both_ways()
    begin()
    works_as_before()
    dist.barrier()
    guarded = any(peer.connection and peer.connection.guarded for peer in _engine().peers.all)
    end()
    return bool(guarded)


def different_secrets() -> str:
    return str(error_of(lambda: (begin(5.0), dist.barrier())))


def abort_in_the_middle_of_a_message() -> str:
    """Give the group up on rank 1 while half of a long message is on its way to rank 0."""
    rank, _ = begin()
    dist.barrier()
    engine, array = _engine(), np.ones(64 << 20, np.uint8)
    started = engine.peers[1 - rank].connection
    if rank == 0:
        read = started.receive
        started.receive = lambda: (time.sleep(0.05), read())[1]  # a slow reader
        heard = _said_by(dist.irecv(array, 1).wait)
    else:
        sending = dist.isend(array, 0)
        until(lambda: not started.idle)
        _abort()
        heard = _said_by(sending.wait)
        array[:] = 0  # the caller's again
    end()
    return heard
