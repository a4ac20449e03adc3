"""Time ways of the kernel to send and to receive beside plain `send` and `recv`, on two connected TCP sockets.

    python benchmarks/socket_ways.py

- zerocopy: `MSG_ZEROCOPY`, whose confirmations are awaited after each exchange, as an array may change then; how many
  of them say that the kernel has copied nevertheless is printed.
- busy poll: `SO_BUSY_POLL` of 50 us, with `recv` that waits in the kernel; its partner, "waiting", waits there without.

Two processes exchange so many bytes with plain sockets and with each way, turn by turn; a cell is the median of the
ratios.
"""

from __future__ import annotations

import argparse
import errno
import multiprocessing
import os
import socket
import statistics
import struct
import time
from collections.abc import Callable
from typing import Any

#: Of Linux's headers; Python has no names for them.
_SO_ZEROCOPY, _MSG_ZEROCOPY, _SO_BUSY_POLL = 60, 0x4000000, 46
_COPIED, _ERROR = 1, struct.Struct("=IBBBBII")
_TURN_NBYTES, _BUSY_POLL_US, _LIMIT_S = 128 << 10, 50, 300


class End:
    """One of two connected sockets."""

    def __init__(self, sock: socket.socket, nbytes: int) -> None:
        self.sock, self.data, self.room = sock, memoryview(bytearray(nbytes)), memoryview(bytearray(nbytes))
        self.copied = self.confirmed = 0
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)

    def exchange(self, flags: int = 0) -> int:
        """Send and receive at the same time; return how often something was sent."""
        data, room, count = self.data, self.room, 0
        while len(data) or len(room):
            try:
                if len(data):
                    data = data[self.sock.send(data[:_TURN_NBYTES], flags) :]
                    count += 1
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # too much is not confirmed
                    raise
            try:
                if len(room):
                    room = room[self.sock.recv_into(room) :]
            except BlockingIOError:
                pass
        return count

    def zerocopy(self) -> None:
        """Exchange without a copy, and wait until the kernel needs the memory no more."""
        awaited = self.exchange(_MSG_ZEROCOPY)
        while awaited > 0:
            try:
                _, told, _, _ = self.sock.recvmsg(0, 512, socket.MSG_ERRQUEUE)
            except BlockingIOError:
                continue
            for _, _, bytes_of in told:
                _, _, _, code, _, first, last = _ERROR.unpack_from(bytes_of)
                awaited -= last - first + 1
                self.confirmed += last - first + 1
                self.copied += (last - first + 1) * (code & _COPIED)

    def waiting(self, busy_us: int = 0) -> None:
        """Exchange what the system takes at once, and wait for the other in the kernel, which may look for so long."""
        self.sock.setsockopt(socket.SOL_SOCKET, _SO_BUSY_POLL, busy_us)
        self.sock.setblocking(True)
        self.sock.sendall(self.data)
        self.sock.recv_into(self.room, len(self.room), socket.MSG_WAITALL)
        self.sock.setblocking(False)


def ways(end: End, nbytes: int) -> dict[str, Callable[[], object]]:
    """Return the ways that this system has, after plain sockets."""
    found: dict[str, Callable[[], object]] = {"plain": end.exchange}
    try:
        end.sock.setsockopt(socket.SOL_SOCKET, _SO_ZEROCOPY, 1)
        found["zerocopy"] = end.zerocopy
    except OSError as error:
        print(f"zerocopy is left out: {error}")
    if nbytes <= _TURN_NBYTES // 2:  # else both would wait for room
        found |= {"waiting": end.waiting, "busy poll": lambda: end.waiting(_BUSY_POLL_US)}
    return found


def work(sock: socket.socket, nbytes: int, turns: int, told: Any) -> None:
    """Be one end."""
    end = End(sock, nbytes)
    times: dict[str, list[float]] = {}
    for turn in range(turns + 1):  # the first is for warming up
        for name, call in ways(end, nbytes).items():
            end.exchange()
            start = time.perf_counter()
            count = max(4, min(100, (8 << 20) // nbytes))
            for _ in range(count):
                call()
            if turn:
                times.setdefault(name, []).append((time.perf_counter() - start) / count * 1e6)
    told.put((times, end.copied, end.confirmed))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 16 << 10, 1 << 20, 16 << 20])
    parser.add_argument("--turns", type=int, default=15)
    given = parser.parse_args()
    print("| bytes | way | us | to plain |\n|---|---|---|---|")
    for nbytes in given.sizes:
        with socket.create_server(("127.0.0.1", 0)) as server:
            first = socket.create_connection(server.getsockname())
            second, _ = server.accept()
        fork = multiprocessing.get_context("fork")
        told = [fork.Queue(), fork.Queue()]
        both = [
            fork.Process(target=work, args=(sock, nbytes, given.turns, queue), daemon=True)
            for sock, queue in zip((first, second), told, strict=True)
        ]
        for process in both:
            process.start()
        times, copied, confirmed = told[0].get(timeout=_LIMIT_S)
        told[1].get(timeout=_LIMIT_S)
        for name, each in times.items():
            ratio = statistics.median(b / a for a, b in zip(times["plain"], each, strict=True))
            print(f"| {nbytes} | {name} | {statistics.median(each):.1f} | {ratio:.2f} |")
        print(f"| {nbytes} | copied nevertheless | {copied} of {confirmed} | |")
        for process in both:
            process.join(_LIMIT_S)
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
