"""Messages: order, tags, any source, sizes, many at a time."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise import P2POp
from rankwise.backends import to_host
from rankwise.errors import DistError, UnsupportedOperationError
from rankwise.kits import ProcessGroup
from rankwise_testing.suite.arrays import on_device, plain, same
from rankwise_testing.suite.expect import begun, error_of, host, numbers, settled, still_usable, until
from rankwise_testing.suite.plugin import Kit, needs

pytestmark = needs("send", "recv")

_MANY = 200
#: How long a message of more than 2 GiB may take on a busy machine.
_LONG_S = 60.0


def test_messages_of_one_stream_stay_in_order(kit: Kit) -> None:
    kit.run(2, stream)


def stream() -> None:
    if dist.get_rank() == 0:
        for i in range(30):
            dist.send(numbers(*[i] * (i % 4 + 1)), 1)
    else:
        for i in range(30):
            array = numbers(*[-1] * (i % 4 + 1))
            assert dist.recv(array, 0) == 0
            same(array, np.full(i % 4 + 1, i, plain()))


@needs("tags")
def test_tags_tell_messages_apart(kit: Kit) -> None:
    kit.run(2, tagged)


def tagged() -> None:
    tags = (0, 1, 7, 2**30 - 1)
    if dist.get_rank() == 0:
        works = [begun(dist.isend(numbers(tag % 100), 1, tag=tag)) for tag in tags]
    else:
        for tag in reversed(tags):
            array = numbers(-1)
            dist.recv(array, 0, tag=tag)
            same(array, host(tag % 100))
        works = []
    for work in works:
        work.wait()


@needs("tags")
def test_every_bit_of_a_tag_counts(kit: Kit) -> None:
    kit.run(2, all_bits)


def all_bits() -> None:
    tags = [0, *(1 << bit for bit in range(30)), *((1 << bit) + 1 for bit in range(1, 30))]
    if dist.get_rank() == 0:
        works = [begun(dist.isend(numbers(i), 1, tag=tag)) for i, tag in enumerate(tags)]
    else:
        works = []
        for i, tag in reversed(list(enumerate(tags))):
            array = numbers(-1)
            dist.recv(array, 0, tag=tag)
            same(array, host(i))
    for work in works:
        work.wait()


@needs("any_source")
def test_any_source_takes_each_message_once_and_tells_the_sender(kit: Kit) -> None:
    kit.run(4, from_anyone)


def from_anyone() -> None:
    rank = dist.get_rank()
    if rank:
        dist.send(numbers(rank), 0)
        dist.send(numbers(10 * rank), 0)
        return
    seen: list[tuple[int, float]] = []
    for _ in range(3):
        array = numbers(-1)
        source = dist.recv(array)
        seen.append((source, float(to_host(array)[0])))
        array = numbers(-1)
        work = begun(dist.irecv(array))
        work.wait()
        seen.append((work.source_rank(), float(to_host(array)[0])))
    for source in (1, 2, 3):
        assert [value for sender, value in seen if sender == source] == [source, 10 * source], seen


@needs("any_source")
def test_the_sender_is_told_by_its_global_rank(kit: Kit) -> None:
    kit.sizes(2)
    kit.run(3, from_anyone_in_a_group)


def from_anyone_in_a_group() -> None:
    group = dist.new_group([2, 1], sort_ranks=False)
    if dist.get_rank() == 2:
        array = numbers(0)
        assert dist.recv(array, group=group) == 1
        same(array, host(5))
    elif isinstance(group, ProcessGroup):
        dist.send(numbers(5), group=group, group_dst=0)


@needs("any_source", "tags")
def test_a_receive_from_anyone_goes_by_its_tag(kit: Kit) -> None:
    kit.run(2, from_anyone_by_tag)


def from_anyone_by_tag() -> None:
    tags = (5, 0, 3, 1 << 29)
    if dist.get_rank() == 0:
        for work in [begun(dist.isend(numbers(tag % 100), 1, tag=tag)) for tag in tags]:
            work.wait()
    else:
        for tag in reversed(tags):
            array = numbers(-1)
            assert dist.recv(array, tag=tag) == 0
            same(array, host(tag % 100))


@needs("any_source", "tags")
def test_a_receive_from_anyone_that_waits_goes_by_its_tag(kit: Kit) -> None:
    """The sender begins when it has heard that the receives wait."""
    kit.on_host_only("operations on one GPU stream run one after the other")
    for size in kit.sizes(2, 3):
        kit.run(size, waiting_for_anyone)


def waiting_for_anyone() -> None:
    tags, last = (7, 0, 5), dist.get_world_size() - 1
    if dist.get_rank() == 0:
        arrays = [numbers(-1) for _ in tags]
        works = [begun(dist.irecv(array, tag=tag)) for array, tag in zip(arrays, tags, strict=True)]
        dist.send(numbers(0), last)
        for work, array, tag in zip(works, arrays, tags, strict=True):
            work.wait(10.0)
            same(array, host(tag))
            assert work.source_rank() == last
    elif dist.get_rank() == last:
        dist.recv(numbers(0), 0)
        for tag in reversed(tags):
            dist.send(numbers(tag), 0, tag=tag)


@pytest.mark.parametrize("feature", ["tags", "any_source", "probe"])
def test_what_is_not_declared_is_refused(kit: Kit, feature: str) -> None:
    if not kit.lacks(feature):
        pytest.skip(f"{feature} is declared, and proved by the other tests")
    kit.run(2, refused, feature)


def refused(feature: str) -> None:
    terms = {"tag": 3, "src": 0} if feature == "tags" else {}
    call: Any = partial(dist.iprobe, 0) if feature == "probe" else partial(dist.recv, numbers(0))
    error = error_of(UnsupportedOperationError, call, **terms)
    assert feature in str(error), error
    if feature == "tags":
        error_of(UnsupportedOperationError, dist.send, numbers(0), 0 if dist.get_rank() else 1, tag=3)


@needs("short_messages")
def test_a_shorter_message_fills_the_beginning(kit: Kit) -> None:
    kit.run(2, shorter)


def shorter() -> None:
    if dist.get_rank() == 0:
        dist.send(numbers(1, 2), 1)
    else:
        array = numbers(-1, -1, -1)
        dist.recv(array, 0)
        same(array, host(1, 2, -1))


@needs("short_messages")
def test_a_longer_message_is_an_error_that_names_both_sizes(kit: Kit) -> None:
    kit.run_alone(2, longer)


def longer() -> None:
    if dist.get_rank() == 0:
        with suppress(DistError):  # the sender need not be there any more to be told
            begun(dist.isend(numbers(1, 2, 3), 1)).wait()
        return
    guarded = numbers(-1, -1, -1)
    work = begun(dist.irecv(guarded[:2], 0))
    first = error_of(DistError, work.wait)
    for size in (3 * guarded.itemsize, 2 * guarded.itemsize):
        assert str(size) in str(first), f"the size {size} is not named: {first}"
    assert to_host(guarded)[2] == host(-1)[0], "something was written past the end"
    again = error_of(DistError, work.wait)
    assert str(again) == str(first)
    assert type(again) is type(first)
    assert work.is_completed()
    assert not work.is_success()
    assert str(work.exception()) == str(first)
    assert str(work.get_future().exception(timeout=5)) == str(first)


@needs("short_messages")
def test_a_message_that_was_too_long_is_gone(kit: Kit) -> None:
    """What is received next is what was sent next, if anything still can be."""
    kit.run_alone(2, after_a_longer_one)


def after_a_longer_one() -> None:
    if dist.get_rank() == 0:
        works = []
        with suppress(DistError):  # the receiver may have given the group up
            works = [begun(dist.isend(numbers(*values), 1)) for values in ((1, 2, 3), (4, 5), (6, 7))]
        for work in works:
            with suppress(DistError):
                work.wait()
        return
    error_of(DistError, begun(dist.irecv(numbers(-1, -1), 0)).wait)
    with suppress(DistError):
        for values in ((4, 5), (6, 7)):
            array = numbers(-1, -1)
            dist.recv(array, 0)
            same(array, host(*values))


@pytest.mark.parametrize("count", [1, 1_000, 200_000])
def test_what_is_sent_is_what_the_array_was(kit: Kit, count: int) -> None:
    """Once a work has ended the array is the caller's again, also if the message has not been received yet."""
    kit.on_host_only("a GPU's work has ended for the host when it is in the stream")
    kit.run(3, changed_after_its_end, count)


def changed_after_its_end(count: int) -> None:
    rank = dist.get_rank()
    if rank == 0:
        arrays = [np.full(count, 1, plain()) for _ in range(2)]
        works = [begun(dist.isend(array, dst)) for dst, array in enumerate(arrays)]
        with suppress(AssertionError):  # a backend may keep the array until it is received
            until(lambda: all(work.is_completed() for work in works), "the end of a send", 0.2)
        for work, array in zip(works, arrays, strict=True):
            if work.is_completed():
                array[:] = 9
        dist.send(numbers(0), 2)
    elif rank == 2:
        dist.recv(numbers(-1), 0)
        dist.send(numbers(0), 1)
        return
    else:
        dist.recv(numbers(-1), 2)
    array = np.zeros(count, plain())
    begun(dist.irecv(array, 0)).wait()
    same(array, np.full(count, 1, plain()))
    if rank == 0:
        for work in works:
            work.wait()


#: More than a signed length of 32 bits tells, and what the two ends may need at one time of their memory.
_BEYOND_NBYTES, _NEEDED_NBYTES = (1 << 31) + 4096, 9 << 30


@pytest.mark.slow
def test_a_message_may_be_longer_than_31_bits_tell(kit: Kit) -> None:
    kit.on_host_only("a GPU has less memory to spare")
    if _available_nbytes() < _NEEDED_NBYTES:
        pytest.skip(f"this machine has no {_NEEDED_NBYTES >> 30} GiB to spare")
    with kit.ranks.patient(8.0):
        kit.run_alone(2, beyond_31_bits)


def beyond_31_bits() -> None:
    count = _BEYOND_NBYTES // plain().itemsize
    marks = [0, (1 << 31) // plain().itemsize - 1, (1 << 31) // plain().itemsize, count - 1]
    if dist.get_rank() == 0:
        array = np.zeros(count, plain())  # pages that nobody writes to take no memory
        array[marks] = host(1, 2, 3, 4)
        begun(dist.isend(array, 1)).wait(_LONG_S)
        return
    array = _of_few_pages(_BEYOND_NBYTES).view(plain())
    array[marks[-1]] = host(9)[0]
    begun(dist.irecv(array, 0)).wait(_LONG_S)
    same(array[marks], host(1, 2, 3, 4))


def _of_few_pages(nbytes: int) -> np.ndarray[Any, Any]:
    """Return bytes of which all but the first and the last ones lie in the same pages, written over again and again.

    Gigabytes of pages that a virtual machine has not touched yet may take it a minute, in which nothing can be told.
    """
    piece_nbytes = 32 << 20
    memory = mmap.mmap(-1, nbytes)
    array = np.frombuffer(memory, np.uint8)
    pages = os.memfd_create("pages")
    os.ftruncate(pages, piece_nbytes)
    map_there = ctypes.CDLL(None, use_errno=True).mmap
    map_there.restype = ctypes.c_void_p
    fixed, access = 0x10 | mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE
    for offset in range(piece_nbytes, nbytes - 2 * piece_nbytes, piece_nbytes):
        place = ctypes.c_void_p(array.ctypes.data + offset)
        found = map_there(place, ctypes.c_size_t(piece_nbytes), access, fixed, pages, ctypes.c_long(0))
        assert found == place.value, os.strerror(ctypes.get_errno())
    os.close(pages)
    return array


def _available_nbytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))


def test_a_message_of_nothing_is_a_message(kit: Kit) -> None:
    kit.run(2, empty)


def empty() -> None:
    array = numbers()
    if dist.get_rank() == 0:
        dist.send(array, 1)
    else:
        assert dist.recv(array, 0) == 0


def test_a_rank_may_send_to_itself(kit: Kit) -> None:
    for size in kit.sizes(1, 2):
        kit.run(size, to_oneself)


def to_oneself() -> None:
    rank = dist.get_rank()
    array = numbers(-1)
    out = begun(dist.isend(numbers(rank), rank))
    begun(dist.irecv(array, rank)).wait()
    out.wait()
    same(array, host(rank))
    error_of(ValueError, dist.send, numbers(1), rank)


def test_two_ranks_send_each_other_much_at_once(kit: Kit) -> None:
    """A send does not wait for its receive: or both would wait for ever."""
    kit.run(2, crossing)


def crossing() -> None:
    rank, count = dist.get_rank(), 1_000_003
    data = [np.arange(count).astype(plain()) * (r + 1) for r in range(2)]
    sending = begun(dist.isend(on_device(data[rank]), 1 - rank))
    array = on_device(np.zeros(count, plain()))
    dist.recv(array, 1 - rank)
    sending.wait()
    same(array, data[1 - rank])


def test_a_batch_may_be_in_any_order(kit: Kit) -> None:
    kit.run(3, batch)


def batch() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    peers = [peer for peer in range(size) if peer != rank]
    buffers = {peer: numbers(*[-1] * 1000) for peer in peers}
    sends = [P2POp(dist.isend, numbers(*[10 * rank + peer] * 1000), peer) for peer in peers]
    receives = [P2POp(dist.irecv, buffers[peer], peer) for peer in reversed(peers)]
    for work in dist.batch_isend_irecv(sends + receives if rank % 2 else receives + sends):
        work.wait()
    for peer, buffer in buffers.items():
        same(buffer, np.full(1000, 10 * peer + rank, plain()))


def test_many_messages_may_be_on_their_way(kit: Kit) -> None:
    kit.run(2, many)


def many() -> None:
    rank = dist.get_rank()
    buffers = [numbers(-1) for _ in range(_MANY)]
    receives = [begun(dist.irecv(buffer, 1 - rank)) for buffer in buffers]
    sends = [begun(dist.isend(numbers(i), 1 - rank)) for i in range(_MANY)]
    for work in reversed(receives + sends):
        work.wait()
    for i, buffer in enumerate(buffers):
        same(buffer, host(i))


@needs("all_reduce", "barrier")
def test_a_receive_may_wait_while_collectives_run(kit: Kit) -> None:
    if kit.device != "cpu":
        pytest.skip("operations on one GPU stream run one after the other")
    kit.run(2, waiting)


def waiting() -> None:
    rank, array = dist.get_rank(), numbers(-1)
    receive = begun(dist.irecv(array, 1)) if rank == 0 else None
    still_usable()
    dist.barrier()
    if receive is None:
        dist.send(numbers(4), 0)
        return
    receive.wait()
    same(array, host(4))


@needs("barrier")
def test_a_receive_that_is_withdrawn_takes_no_message(kit: Kit) -> None:
    kit.run_alone(2, withdrawn)


def withdrawn() -> None:
    if dist.get_rank() == 0:
        settled(dist.barrier)
        dist.send(numbers(6), 1)
        return
    unused, array = numbers(-1), numbers(-1)
    work = begun(dist.irecv(unused, 0))
    gone = work.cancel()
    settled(dist.barrier)
    if gone:
        dist.recv(array, 0)
        same(unused, host(-1))
    else:  # a backend need not be able to
        work.wait()
        array = unused
    same(array, host(6))
