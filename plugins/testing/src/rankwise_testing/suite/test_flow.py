"""Flow: a receiver that waits for a message gets it, whatever others there are, of whatever sizes, tags and orders."""

from __future__ import annotations

from typing import Any

import pytest

import rankwise as dist
from rankwise.kits import Work
from rankwise_testing.suite.arrays import on_device, pattern, same
from rankwise_testing.suite.exercises import Case, perform
from rankwise_testing.suite.expect import begun
from rankwise_testing.suite.plugin import Kit, needs

pytestmark = needs("send", "recv")

_MIB = 1 << 20
#: Sizes that follow each other, in both orders: together they cross windows of 64 KiB, 256 KiB, 1, 4 and 16 MiB.
_NEIGHBOURS = (
    *((1, 4 * _MIB), (1, 4 * _MIB - 1), (1, 4 * _MIB - 2), (1_000_000, 3_200_000), (_MIB - 1, 3 * _MIB + 2)),
    *((_MIB - 1, 3 * _MIB + 1), (_MIB, 3 * _MIB), (_MIB + 1, _MIB - 1), (2 * _MIB + 1, 2 * _MIB - 1), (0, 5 * _MIB)),
    *((1, 65_535), (1, 65_536), (65_535, 65_537), (1, 262_143), (262_144, 786_432), (1, 9 * _MIB), (4_095, 4_097)),
)


def _message(nbytes: int, salt: int) -> Any:
    return on_device(pattern(nbytes, salt))


def _blank(nbytes: int) -> Any:
    return on_device(pattern(nbytes, 125))


def _receive(nbytes: int, salt: int, src: int, tag: int = 0) -> None:
    array = _blank(nbytes)
    assert dist.recv(array, src, tag=tag) == src
    same(array, pattern(nbytes, salt))


@pytest.fixture(autouse=True)
def _bytes(kit: Kit) -> None:
    kit.require("uint8", "send", "recv")


@pytest.mark.parametrize("sender", [0, 1])
def test_any_size_may_follow_any_other(kit: Kit, sender: int) -> None:
    kit.run(2, in_turn, sender)


def in_turn(sender: int) -> None:
    for first, second in _NEIGHBOURS:
        for salt, nbytes in enumerate((first, second, second, first)):
            if dist.get_rank() == sender:
                dist.send(_message(nbytes, salt), 1 - sender)
            else:
                _receive(nbytes, salt, sender)


@pytest.mark.parametrize("nbytes", [16 * _MIB - 1, 16 * _MIB + 1, 37 * _MIB + 3])
def test_a_very_long_message_is_right_to_its_last_byte(kit: Kit, nbytes: int) -> None:
    kit.run(2, very_long, nbytes)


def very_long(nbytes: int) -> None:
    if dist.get_rank() == 0:
        dist.send(_message(nbytes, 5), 1)
    else:
        _receive(nbytes, 5, 0)


@needs("tags")
@pytest.mark.parametrize(
    ("count", "nbytes"),
    [(1, 9 * _MIB), (4, 1_040_000), (5, 1_200_000), (40, 262_144), (300, 16_384), (1_000, 1), (1_024, 4), (2_000, 1)],
)
def test_a_later_tag_may_be_received_first(kit: Kit, count: int, nbytes: int) -> None:
    kit.on_host_only("operations on one GPU stream run one after the other")
    kit.run(2, late_tag_first, count, nbytes)


def late_tag_first(count: int, nbytes: int) -> None:
    if dist.get_rank() == 0:
        works = [begun(dist.isend(_message(nbytes, i), 1, tag=5)) for i in range(count)]
        works.append(begun(dist.isend(_message(nbytes, 77), 1, tag=3)))
        for work in works:
            work.wait()
    else:
        _receive(nbytes, 77, 0, tag=3)
        for i in range(count):
            _receive(nbytes, i, 0, tag=5)


@needs("tags")
def test_both_may_send_much_at_once_and_receive_it_backwards(kit: Kit) -> None:
    kit.on_host_only("operations on one GPU stream run one after the other")
    kit.run(2, backwards)


def backwards() -> None:
    rank = dist.get_rank()
    sizes = [_MIB * 3 // 2, 1, 2 * _MIB, 100, _MIB + 1, 300_000, 1, 3 * _MIB]
    sends = [begun(dist.isend(_message(n, tag + rank), 1 - rank, tag=tag)) for tag, n in enumerate(sizes)]
    for tag, n in reversed(list(enumerate(sizes))):
        _receive(n, tag + 1 - rank, 1 - rank, tag=tag)
    for work in sends:
        work.wait()


@needs("tags")
def test_receives_that_were_begun_in_another_order(kit: Kit) -> None:
    kit.on_host_only("operations on one GPU stream run one after the other")
    kit.run(2, begun_in_another_order)


def begun_in_another_order() -> None:
    rank, tags = dist.get_rank(), range(12)
    sizes = [(tag * 700_001) % (2 * _MIB) + 1 for tag in tags]
    arrays = [_blank(n) for n in sizes]
    receives = [begun(dist.irecv(arrays[tag], 1 - rank, tag=tag)) for tag in (5 * tag % 12 for tag in tags)]
    sends = [begun(dist.isend(_message(sizes[tag], tag), 1 - rank, tag=tag)) for tag in (7 * tag % 12 for tag in tags)]
    for work in (*receives, *reversed(sends)):
        work.wait()
    for tag in tags:
        same(arrays[tag], pattern(sizes[tag], tag))


@pytest.mark.parametrize(("count", "nbytes"), [(3_000, 8), (12, _MIB)])
def test_much_may_wait_for_its_receive_in_both_directions(kit: Kit, count: int, nbytes: int) -> None:
    kit.on_host_only("operations on one GPU stream run one after the other")
    kit.run(2, much_waits, count, nbytes)


def much_waits(count: int, nbytes: int) -> None:
    rank = dist.get_rank()
    works: list[Work] = [begun(dist.isend(_message(nbytes, i), 1 - rank)) for i in range(count)]
    arrays = [_blank(nbytes) for _ in range(count)]
    works += [begun(dist.irecv(array, 1 - rank)) for array in arrays]
    for work in reversed(works):
        work.wait()
    for i, array in enumerate(arrays):
        same(array, pattern(nbytes, i))


def test_what_waits_from_one_rank_holds_up_no_other(kit: Kit) -> None:
    kit.on_host_only("operations on one GPU stream run one after the other")
    kit.run(3, from_two)


def from_two() -> None:
    rank, sizes = dist.get_rank(), [*[2 * _MIB] * 4, *[1] * 1_500]
    if rank == 0:
        for src in (2, 1):
            for i, nbytes in enumerate(sizes):
                _receive(nbytes, i + src, src)
    else:
        for work in [begun(dist.isend(_message(nbytes, i + rank), 0)) for i, nbytes in enumerate(sizes)]:
            work.wait()


@needs("any_source")
def test_no_sender_is_passed_over_though_all_send_much(kit: Kit) -> None:
    kit.run(4, from_anyone)


def from_anyone() -> None:
    rank, count, nbytes = dist.get_rank(), 16, 300_000
    if rank:
        for work in [begun(dist.isend(_message(nbytes, 20 * rank + i), 0)) for i in range(count)]:
            work.wait()
        return
    taken = [0, 0, 0, 0]
    for _ in range(3 * count):
        array = _blank(nbytes)
        source = dist.recv(array)
        same(array, pattern(nbytes, 20 * source + taken[source]))
        taken[source] += 1
    assert taken == [0, count, count, count]


@needs("all_reduce", "barrier", "all_to_all")
def test_collectives_run_while_much_is_on_its_way(kit: Kit) -> None:
    kit.on_host_only("operations on one GPU stream run one after the other")
    kit.run(3, beside_collectives)


def beside_collectives() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    sizes = [*[2 * _MIB] * 4, *[3] * 1_100]
    sends = [begun(dist.isend(_message(nbytes, i), right)) for i, nbytes in enumerate(sizes)]
    for op in ("barrier", "all_reduce", "all_to_all"):
        for count in (1, 500_000):
            perform(Case(op, reduce="SUM" if op == "all_reduce" else None, count=count))
    for i, nbytes in enumerate(sizes):
        _receive(nbytes, i, left)
    for work in sends:
        work.wait()
