"""Messages that are looked at before they are received, and how much of one a receive has got."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import rankwise as dist
from rankwise.errors import DistTimeoutError
from rankwise_testing.suite.arrays import on_device, plain, same
from rankwise_testing.suite.expect import begun, error_of, host, numbers, still_usable
from rankwise_testing.suite.plugin import Kit, needs


@needs("send", "recv", "probe")
def test_a_message_that_was_probed_is_there_to_be_received(kit: Kit) -> None:
    kit.run(2, probed)


def probed() -> None:
    if dist.get_rank() == 0:
        for length in (3, 1):
            dist.send(numbers(*range(length)), 1)
        return
    for length in (3, 1):
        found = dist.probe(0)
        assert found is not None
        assert dist.iprobe(0) == found, "the same message is told twice, and differs"
        assert (found.source, found.tag, found.nbytes) == (0, 0, length * plain().itemsize), found
        assert found.dtype in (None, plain())
        assert found.count(plain()) == length
        array = numbers(*[-1] * length)
        dist.recv(array, 0)
        same(array, host(*range(length)))
    assert dist.iprobe(0) is None, "a message that was received is still told"


@needs("send", "recv", "probe")
def test_messages_of_any_length_are_probed(kit: Kit) -> None:
    kit.run(2, probed_at_all_lengths)


def probed_at_all_lengths() -> None:
    lengths = (0, 1_000_000, 5)
    if dist.get_rank() == 0:
        works = [begun(dist.isend(on_device(host(7).repeat(length)), 1)) for length in lengths]
        for work in works:
            work.wait()
        return
    for length in lengths:
        found = dist.probe(0)
        assert found is not None
        assert found.count(plain()) == length
        array = on_device(host(-1).repeat(length))
        dist.recv(array, 0)
        same(array, host(7).repeat(length))


@needs("send", "recv", "probe")
def test_a_probe_that_finds_nothing_changes_nothing(kit: Kit) -> None:
    kit.run(2, probed_in_vain)


def probed_in_vain() -> None:
    other = 1 - dist.get_rank()
    for prober in range(2):
        if dist.get_rank() == prober:
            assert dist.iprobe(other) is None
            error_of(DistTimeoutError, dist.probe, other, timeout=0.2)
            dist.send(numbers(0), other)
        else:  # until then nothing is on its way to the other rank
            dist.recv(numbers(-1), other)
    still_usable()
    work = begun(dist.isend(numbers(other), other))
    found = dist.probe(other)
    assert found is not None
    assert found.source == other
    array = numbers(-1)
    dist.recv(array, other)
    same(array, host(dist.get_rank()))
    work.wait()


@needs("send", "recv", "probe", "tags")
def test_a_probe_goes_by_its_tag(kit: Kit) -> None:
    kit.run(2, probed_by_tag)


def probed_by_tag() -> None:
    tags = (5, 0, 2**30 - 1)
    if dist.get_rank() == 0:
        for work in [begun(dist.isend(numbers(*range(place + 1)), 1, tag=tag)) for place, tag in enumerate(tags)]:
            work.wait()
        return
    for place, tag in reversed([*enumerate(tags)]):
        found = dist.probe(0, tag=tag)
        assert found is not None
        assert (found.tag, found.count(plain())) == (tag, place + 1), found
        assert dist.iprobe(0, tag=1) is None, "a message of another tag is told"
        array = numbers(*[-1] * (place + 1))
        dist.recv(array, 0, tag=tag)
        same(array, host(*range(place + 1)))


@needs("send", "recv", "probe", "any_source")
def test_a_probe_of_anyone_tells_the_sender_by_its_global_rank(kit: Kit) -> None:
    kit.sizes(3)
    kit.run(3, probed_of_anyone)


def probed_of_anyone() -> None:
    group = dist.new_group([2, 1, 0], sort_ranks=False)
    if dist.get_rank() == 2:
        for _ in range(2):
            found = dist.probe(group=group)
            assert found is not None
            assert found.count(plain()) == found.source + 1, f"that is not what rank {found.source} has sent"
            array = numbers(*[-1] * found.count(plain()))
            assert dist.recv(array, found.source, group=group) == found.source
            same(array, host(*[found.source] * (found.source + 1)))
    else:
        rank = dist.get_rank()
        dist.send(numbers(*[rank] * (rank + 1)), 2, group=group)


@needs("send", "recv", "probe", "async")
def test_what_a_receive_waits_for_is_not_told(kit: Kit) -> None:
    kit.run(2, met_already)


def met_already() -> None:
    if dist.get_rank() == 0:
        dist.recv(numbers(0), 1)
        for value in (1, 2):
            dist.send(numbers(value), 1)
        return
    array, later = numbers(-1), numbers(-1)
    work = begun(dist.irecv(array, 0))
    dist.send(numbers(0), 0)
    found = dist.probe(0)  # the second: the first belongs to the receive
    assert found is not None
    work.wait()
    same(array, host(1))
    dist.recv(later, 0)
    same(later, host(2))
    assert dist.iprobe(0) is None


@needs("send", "recv", "async")
def test_a_receive_tells_how_much_it_has_got(kit: Kit) -> None:
    kit.run(2, tells_how_much, (3, 3, 3), 3)


@needs("send", "recv", "async", "short_messages")
def test_a_receive_of_a_shorter_message_tells_how_much_it_has_got(kit: Kit) -> None:
    kit.run(2, tells_how_much, (2, 0, 4, 1), 4)


def tells_how_much(lengths: Sequence[int], room: int) -> None:
    """Begin receives before the message leaves, and in the second round, where each is most likely there."""
    for begins_before in (True, False):
        for length in lengths:
            if dist.get_rank() == 0:
                if begins_before:
                    dist.recv(numbers(0), 1)
                work = begun(dist.isend(numbers(*range(length)), 1))
                work.wait()
                assert work.nbytes == 0, "a send tells that it has received"
                continue
            work = begun(dist.irecv(numbers(*[-1] * room), 0))
            if begins_before:
                assert work.nbytes == 0, "a receive has got something that was not sent"
                dist.send(numbers(0), 0)
            work.wait()
            assert (work.nbytes, work.count(plain())) == (length * plain().itemsize, length)
            if length % 2:
                error_of(ValueError, work.count, np.dtype((np.void, 2 * plain().itemsize)))
