"""Rank 0 hands out the memory that a host shares to all that prove themselves, and nobody keeps the others waiting."""

import os
import platform
import socket
import threading

import pytest

from rankwise.backends import Deadline
from rankwise.errors import DistTimeoutError
from rankwise_gloo_tcp.protocol import handshake
from rankwise_gloo_tcp.setup import handing

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
        handing.hand_out(listener, writable, KEY, SIZE, Deadline(timeout_s), look)
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
