"""Any thread may call: messages of several do not mix, and groups do not disturb each other."""

from __future__ import annotations

from functools import partial

import pytest

import rankwise as dist
from rankwise.backends import to_host
from rankwise.kits import ProcessGroup
from rankwise_testing.suite.arrays import on_device, pattern, same
from rankwise_testing.suite.exercises import Case, perform
from rankwise_testing.suite.expect import begun, still_usable, together
from rankwise_testing.suite.plugin import Kit, needs

_THREADS = 4
#: Below and above what sockets and eager protocols take in one call.
_SIZES = (1, 70_000, 1_500_000, 3, 400_000, 2_500_000, 300, 900_000)


@pytest.fixture(autouse=True)
def _on_host(kit: Kit) -> None:
    kit.on_host_only("each thread has a stream of its own on a GPU")


@needs("send", "recv", "tags")
def test_threads_that_send_and_receive_at_the_same_time(kit: Kit) -> None:
    kit.require("uint8", "send", "recv")
    kit.run(2, by_tags)


def by_tags() -> None:
    together([partial(_exchange, tag) for tag in range(_THREADS)])


def _exchange(tag: int) -> None:
    peer = 1 - dist.get_rank()
    for i, nbytes in enumerate(_SIZES):
        work = begun(dist.isend(on_device(pattern(nbytes, 20 * tag + i)), peer, tag=tag))
        array = on_device(pattern(nbytes, 200))
        dist.recv(array, peer, tag=tag)
        same(array, pattern(nbytes, 20 * tag + i))
        work.wait()


@needs("send", "recv")
def test_messages_of_several_threads_to_one_receiver_stay_whole(kit: Kit) -> None:
    kit.require("uint8", "send", "recv")
    kit.run(2, one_stream)


def one_stream() -> None:
    count, nbytes = 6, 700_001
    if dist.get_rank() == 0:
        together([partial(_send_many, 40 * thread, count, nbytes) for thread in range(_THREADS)])
        return
    seen = []
    for _ in range(_THREADS * count):
        array = on_device(pattern(nbytes, 250))
        dist.recv(array, 0)
        salt = int(to_host(array)[0])  # the pattern begins with its salt
        same(array, pattern(nbytes, salt))
        seen.append(salt)
    for thread in range(_THREADS):
        mine = [salt for salt in seen if salt // 40 == thread]
        assert mine == [40 * thread + i for i in range(count)], f"messages of one thread came as {mine}"


def _send_many(salt: int, count: int, nbytes: int) -> None:
    for i in range(count):
        dist.send(on_device(pattern(nbytes, salt + i)), 1)


@needs("all_reduce", "all_gather", "broadcast")
def test_each_thread_may_have_a_group_of_its_own(kit: Kit) -> None:
    kit.run(3, groups_of_threads)


def groups_of_threads() -> None:
    groups = [dist.new_group() for _ in range(_THREADS)]
    together([partial(_collectives, group) for group in groups])
    for group in groups:
        still_usable(group)
        dist.destroy_process_group(group)


def _collectives(group: ProcessGroup | int) -> None:
    assert isinstance(group, ProcessGroup)
    for count in (1, 3_000, 200_000, 10):
        for op in ("all_reduce", "all_gather", "broadcast"):
            perform(Case(op, reduce="SUM" if op == "all_reduce" else None, count=count), group)
