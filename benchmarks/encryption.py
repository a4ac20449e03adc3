"""Tell what it takes a processor to encrypt and to decrypt an array as gloo does: what encrypted calls cannot be below.

    python benchmarks/encryption.py

In the first table nothing is sent: the bytes go through OpenSSL's memory (`ssl.SSLObject`), in pieces of as many as a
connection takes at a time. In the second they go through a socket, as gloo's connections have it: as they are, by
compiled code, and by the standard library; so much at a time, and then the other end takes it. What is shown is
processor time, the least of some rounds. It needs the extra `encryption` of rankwise-gloo-tcp.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import ssl
import time
from itertools import pairwise
from typing import Any

from rankwise_gloo_tcp.protocol.card import Card
from rankwise_gloo_tcp.setup import privacy
from rankwise_gloo_tcp.transport import openssl

#: How much is sent before the other end takes it.
AT_ONCE_NBYTES = 128 << 10
STEPS = ("encrypt", "take out", "put in", "decrypt")


def ends() -> tuple[ssl.SSLObject, ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    """Return both ends of an encrypted connection, where the first's bytes come out, and where the other takes them."""
    contexts = [ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)]
    known = [privacy.prepare(privacy.ENCRYPTED) for _ in contexts]
    for context, own, other in zip(contexts, known, known[::-1], strict=True):
        assert own is not None
        assert other is not None
        context.minimum_version, context.check_hostname = ssl.TLSVersion.TLSv1_3, False
        own.prove(context)
        context.load_verify_locations(cadata=other.certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    out, into = ssl.MemoryBIO(), ssl.MemoryBIO()
    first = contexts[0].wrap_bio(into, out)
    second = contexts[1].wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for end in (first, second):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
        there.write(out.read())
        into.write(back.read())
    return first, second, out, there


def joined(way: str) -> tuple[Any, Any]:
    """Return both ends of a connection that is encrypted in some way."""
    pair = socket.socketpair(socket.AF_UNIX)
    for sock in pair:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * AT_ONCE_NBYTES)
    if way == "plain":
        return pair
    known: dict[str, Any] = {"uid": 0, "pid": 0, "port": 0, "cores": ("1", 1.0)}
    mine = [privacy.prepare(privacy.ENCRYPTED) for _ in pair]
    blank = Card(**{name: known.get(name, "") for name in Card._fields})
    cards = [blank._replace(certificate=each.certificate if each else "") for each in mine]
    ends = []
    for rank, sock in enumerate(pair):
        encryption = privacy.encryption(mine[rank], cards, (0, 1), "benchmark")
        assert encryption is not None
        encryption.compiled = way == "compiled"
        ends.append(encryption.begin(sock, 1 - rank, rank == 0))
    while not all([end.shake() for end in ends]):
        pass
    return ends[0], ends[1]


def through(way: str, data: memoryview, room: memoryview, rounds: int) -> list[float]:
    """Return how many seconds of a processor it takes to send and to receive."""
    first, second = joined(way)
    best = [float("inf")] * 2
    for _ in range(rounds):
        took, sent, received = [0.0, 0.0], 0, 0
        while received < len(data):
            marks = [time.thread_time()]
            with contextlib.suppress(BlockingIOError):
                sent += first.send(data[sent : sent + AT_ONCE_NBYTES]) if sent < len(data) else 0
            marks.append(time.thread_time())
            with contextlib.suppress(BlockingIOError):
                received += second.recv_into(room[received:])
            marks.append(time.thread_time())
            took = [before + b - a for before, (a, b) in zip(took, pairwise(marks), strict=True)]
        best = list(map(min, best, took))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--bytes", type=int, default=16 << 20)
    parser.add_argument("--pieces", type=int, nargs="+", default=[16 << 10, 64 << 10, 256 << 10])
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    first, second, out, there = ends()
    data, room = memoryview(bytearray(given.bytes)), memoryview(bytearray(given.bytes))
    print(f"{ssl.OPENSSL_VERSION}, {first.cipher()[0]}, {given.bytes} bytes")  # type: ignore[index]
    print(f"| bytes at a time | {' | '.join(f'{step} (ms)' for step in STEPS)} |\n{'|---' * 5}|")
    for length in given.pieces:
        best = [float("inf")] * len(STEPS)
        for _ in range(given.rounds):
            took = [0.0] * len(STEPS)
            for begin in range(0, given.bytes, length):
                marks = [time.thread_time()]
                piece = data[begin : begin + length]
                first.write(piece)
                marks.append(time.thread_time())
                sealed = out.read()
                marks.append(time.thread_time())
                there.write(sealed)
                marks.append(time.thread_time())
                view = room[begin : begin + len(piece)]
                while len(view):
                    count: Any = second.read(len(view), view)
                    view = view[int(count) :]
                marks.append(time.thread_time())
                took = [sum(pair) for pair in zip(took, (b - a for a, b in pairwise(marks)), strict=True)]
            best = list(map(min, best, took))
        print(f"| {length} | {' | '.join(f'{seconds * 1e3:.2f}' for seconds in best)} |")
    print("\n| through a socket | send (ms) | receive (ms) |\n|---|---|---|")
    for way in ("plain", *(["compiled"] if openssl.is_usable() else []), "standard library"):
        took = through(way, data, room, given.rounds)
        print(f"| {way} | {took[0] * 1e3:.2f} | {took[1] * 1e3:.2f} |")


if __name__ == "__main__":
    main()
