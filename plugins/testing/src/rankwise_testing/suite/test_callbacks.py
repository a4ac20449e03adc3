"""Callbacks that wait: for operations that they themselves have begun, by `Work.wait` and by futures."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import rankwise as dist
from rankwise.kits import Work
from rankwise_testing.suite.arrays import same
from rankwise_testing.suite.expect import begun, host, numbers, still_usable, together
from rankwise_testing.suite.plugin import Kit, needs

pytestmark = needs("async", "all_reduce")

_SOON_S = 8.0
_WAYS: dict[str, Callable[[Work], object]] = {
    "wait": lambda work: work.wait(),
    "wait with a time-out": lambda work: work.wait(_SOON_S),
    "future": lambda work: work.get_future().result(),
    "future with a time-out": lambda work: work.get_future().result(_SOON_S),
    "result": lambda work: work.result(),
}


@pytest.mark.parametrize("way", list(_WAYS))
def test_a_callback_may_wait_for_what_it_has_begun(kit: Kit, way: str) -> None:
    kit.on_host_only("a callback must not wait for the GPU")
    kit.run(2, wait_in_callback, way)


def wait_in_callback(way: str) -> None:
    first, second, ended = numbers(1), numbers(2), _Ending()

    def then(work: Work) -> None:
        _WAYS[way](begun(dist.all_reduce(second, async_op=True)))

    begun(dist.all_reduce(first, async_op=True)).add_done_callback(ended.of(then))
    ended.check()
    same(first, host(2))
    same(second, host(4))
    still_usable()


@pytest.mark.parametrize("way", ["wait", "future"])
def test_a_callback_may_wait_for_what_was_begun_before_and_after(kit: Kit, way: str) -> None:
    kit.on_host_only("a callback must not wait for the GPU")
    kit.run(3, wait_for_others, way)


def wait_for_others(way: str) -> None:
    arrays = [numbers(i) for i in range(6)]
    ended = _Ending()
    works: list[Work] = []
    issued, issuing = threading.Event(), threading.get_ident()

    def then(work: Work) -> None:
        # Of a work that has ended already it is called immediately, and what comes after is not begun yet.
        assert threading.get_ident() == issuing or issued.wait(_SOON_S)
        for other in reversed(works):
            _WAYS[way](other)

    works.append(begun(dist.all_reduce(arrays[0], async_op=True)))
    works[0].add_done_callback(ended.of(then))
    works.extend(begun(dist.all_reduce(array, async_op=True)) for array in arrays[1:])
    issued.set()
    ended.check()
    # A callback that was called immediately has waited for the first work alone.
    for work in works:
        work.wait(_SOON_S)
    for i, array in enumerate(arrays):
        same(array, host(3 * i))


@needs("send", "recv")
@pytest.mark.parametrize("way", ["wait", "future"])
def test_a_callback_may_wait_for_messages(kit: Kit, way: str) -> None:
    kit.on_host_only("a callback must not wait for the GPU")
    kit.run(2, wait_for_messages, way)


def wait_for_messages(way: str) -> None:
    peer, array, answer, ended = 1 - dist.get_rank(), numbers(-1), numbers(-1), _Ending()

    def then(work: Work) -> None:
        sent = begun(dist.isend(numbers(float(array[0]) + 1), peer))
        _WAYS[way](begun(dist.irecv(answer, peer)))
        _WAYS[way](sent)

    first = begun(dist.isend(numbers(5), peer))
    begun(dist.irecv(array, peer)).add_done_callback(ended.of(then))
    first.wait()
    ended.check()
    same(answer, host(6))


@needs("send", "recv")
def test_a_callback_may_send_and_the_next_one_answer(kit: Kit) -> None:
    kit.on_host_only("a callback must not wait for the GPU")
    kit.run(2, ping_pong)


def ping_pong() -> None:
    """Pass a message to and fro: each is sent, by a call that blocks, from the callback of the one before."""
    rank, peer, rounds, ended = dist.get_rank(), 1 - dist.get_rank(), 30, _Ending()
    got: list[float] = []

    def serve(number: int) -> None:
        array = numbers(-1)

        def then(work: Work) -> None:
            work.wait()
            got.append(float(array[0]))
            if number + 2 <= rounds:
                serve(number + 2)
            if number + 1 <= rounds:
                dist.send(numbers(number + 1), peer)
            if number + 2 > rounds:
                last(work)

        begun(dist.irecv(array, peer)).add_done_callback(ended.failing(then))

    last = ended.of(lambda work: None)
    serve(rank)  # rank 0 gets the even ones
    if rank == 1:
        dist.send(numbers(0), peer)
    ended.check()
    assert got == list(range(rank, rounds + 1, 2)), got
    still_usable()


def test_several_threads_may_wait_for_one_work(kit: Kit) -> None:
    kit.on_host_only("each thread has a stream of its own")
    kit.run(2, wait_by_many)


def wait_by_many() -> None:
    array = numbers(1)
    work = begun(dist.all_reduce(array, async_op=True))
    together([lambda way=way: way(work) for way in _WAYS.values()], _SOON_S)  # type: ignore[misc]
    same(array, host(2))


class _Ending:
    """Whether a callback has returned, and what it has raised."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._errors: list[BaseException] = []

    def of(self, call: Callable[[Work], object]) -> Callable[[Work], Any]:
        def guarded(work: Work) -> None:
            try:
                call(work)
            except BaseException as error:  # it is raised again where it can be seen
                self._errors.append(error)
            self._event.set()

        return guarded

    def failing(self, call: Callable[[Work], object]) -> Callable[[Work], Any]:
        """Return what ends all only if it raises."""

        def guarded(work: Work) -> None:
            try:
                call(work)
            except BaseException as error:  # it is raised again where it can be seen
                self._errors.append(error)
                self._event.set()

        return guarded

    def check(self) -> None:
        assert self._event.wait(_SOON_S), f"the callback did not return within {_SOON_S:g} s"
        if self._errors:
            raise self._errors[0]
