"""The memory that a host shares is handed to all that prove themselves, and nobody keeps the others waiting."""

import contextlib
import os
import platform
import socket
import threading

import pytest

from rankwise.backends import Deadline
from rankwise.errors import DistTimeoutError
from rankwise_gloo_tcp.protocol import handshake
from rankwise_gloo_tcp.setup import handing
from rankwise_network import doors

TIMEOUT_S = 20.0
KEY, SIZE = b"k" * 32, 4

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="abstract Unix sockets are Linux's")


@pytest.fixture
def place():
    name = f"rankwise-test-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + name)
        listener.listen(16)
        yield listener, name


def handed_out(listener, timeout_s, look=lambda: None):
    readable, writable = os.pipe()
    try:
        handing.hand_out(listener, writable, KEY, 0, SIZE, Deadline(timeout_s), look)
    finally:
        os.close(writable)
    return readable


def guest(name):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(TIMEOUT_S)
    sock.connect("\0" + name)
    return sock


def test_a_guest_that_is_slow_keeps_nobody_waiting_and_gets_the_memory_in_the_end(place):
    listener, name = place
    got, served = [], []
    with guest(name) as slow, guest(name) as silent:
        hello = handshake.Hello.new(1, 0, SIZE)
        slow.sendall(hello.pack()[:5])  # so much of it, before the others come
        host = threading.Thread(target=lambda: served.append(handed_out(listener, TIMEOUT_S)))
        host.start()
        for rank in (2, 3):
            got.append(handing.fetch(name, rank, SIZE, KEY, Deadline(TIMEOUT_S)))
        slow.sendall(hello.pack()[5:])
        answered = slow.recv(handshake.ANSWER_NBYTES, socket.MSG_WAITALL)
        slow.sendall(handshake.proof(KEY, hello, answered))
        got += socket.recv_fds(slow, 1, 1)[1]
        host.join(TIMEOUT_S)
        assert silent.recv(1) == b""  # it never said a word
    for descriptor in got:
        os.write(descriptor, b"x")
        os.close(descriptor)
    assert os.read(served[0], 8) == b"xxx"
    os.close(served[0])


def test_a_stranger_gets_nothing_and_those_who_do_not_come_are_named(place):
    listener, name = place
    looks, errors = [], []

    def stranger():
        try:
            handing.fetch(name, 1, SIZE, b"another key", Deadline(TIMEOUT_S))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=stranger)
    thread.start()
    with pytest.raises(DistTimeoutError, match="group ranks 1, 2, 3 did not come for the shared memory in time"):
        handed_out(listener, 0.6, lambda: looks.append(True))
    thread.join(TIMEOUT_S)
    assert looks
    assert len(errors) == 1


@pytest.mark.parametrize("size", [2, 16, 17, 18, 100, 273, 274, 1000])
def test_each_rank_gets_it_from_one_and_few_are_handed_it_by_the_same(size):
    givers = {taker: rank for rank in range(size) for taker in handing.below(rank, size)}
    assert sorted(givers) == list(range(1, size))
    assert all(handing.above(taker) == giver for taker, giver in givers.items())
    assert max(len(handing.below(rank, size)) for rank in range(size)) <= 16


def test_it_is_handed_on_from_rank_to_rank(monkeypatch):
    monkeypatch.setattr(handing, "_FANOUT", 2)
    size, names, got = 8, {}, {}
    listeners = {rank: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for rank in range(size)}
    readable, writable = os.pipe()

    def be(rank):
        name = names[max(0, handing.above(rank))]
        descriptor = handing.fetch(name, rank, size, KEY, Deadline(TIMEOUT_S)) if rank else writable
        if handing.below(rank, size):
            handing.hand_out(listeners[rank], descriptor, KEY, rank, size, Deadline(TIMEOUT_S), lambda: None)
        os.write(descriptor, b"%d" % rank)
        os.close(descriptor)
        got[rank] = True

    for rank, listener in listeners.items():
        names[rank] = f"rankwise-test-{os.urandom(8).hex()}"
        listener.bind("\0" + names[rank])
        listener.listen(2)
    threads = [threading.Thread(target=be, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    for listener in listeners.values():
        listener.close()
    assert len(got) == size
    assert sorted(os.read(readable, 16)) == sorted(b"01234567")
    os.close(readable)


def test_strangers_who_fill_the_queue_and_the_places_keep_nobody_out(place):
    """They come before anybody is served, so many that there is no place in the queue, and say nothing."""
    listener, name = place
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(BlockingIOError):
            while True:
                stranger = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                stranger.setblocking(False)
                stranger.connect("\0" + name)
        guests = [
            threading.Thread(
                target=lambda rank=rank: os.close(handing.fetch(name, rank, SIZE, KEY, Deadline(TIMEOUT_S)))
            )
            for rank in (1, 2, 3)
        ]
        for thread in guests:
            thread.start()
        host = threading.Thread(target=lambda: os.close(handed_out(listener, TIMEOUT_S)))
        host.start()
        for _ in range(2 * doors.PLACES):
            stranger = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            stranger.setblocking(False)
            stranger.connect_ex("\0" + name)
        for thread in (*guests, host):
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()
