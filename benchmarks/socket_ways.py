"""Time ways of the kernel to send and to receive beside plain `send` and `recv`, on two connected TCP sockets.

    python benchmarks/socket_ways.py

- zerocopy: `MSG_ZEROCOPY`, whose confirmations are awaited after each exchange, as an array may change then; how many
  of them say that the kernel has copied nevertheless is printed.
- busy poll: `SO_BUSY_POLL` of 50 us, with `recv` that waits in the kernel; its partner, "waiting", waits there without.
- 2 connections, 4 connections: each moves its share, on a thread of its own.
- io_uring: a ring a process, by a program in C (`io_uring.c`) beside `send` and `recv` in C, to which it is compared.

Two processes exchange so many bytes with plain sockets and with each way, turn by turn; a cell is the median of the
ratios.
"""

from __future__ import annotations

import argparse
import errno
import multiprocessing
import os
import shutil
import socket
import statistics
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

#: Of Linux's headers; Python has no names for them.
_SO_ZEROCOPY, _MSG_ZEROCOPY, _SO_BUSY_POLL = 60, 0x4000000, 46
_COPIED, _ERROR = 1, struct.Struct("=IBBBBII")
_TURN_NBYTES, _BUSY_POLL_US, _LIMIT_S = 128 << 10, 50, 300
#: How many connections share the bytes at most, and from how many bytes on.
_CONNECTIONS, _SHARED_NBYTES = 4, 1 << 20


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


def shared(socks: Sequence[socket.socket], nbytes: int) -> Callable[[], None]:
    """Return what exchanges the bytes over several connections, each on a thread of its own."""
    ends = [End(sock, nbytes // len(socks)) for sock in socks]

    def exchange() -> None:
        threads = [threading.Thread(target=end.exchange, daemon=True) for end in ends[1:]]
        for thread in threads:
            thread.start()
        ends[0].exchange()
        for thread in threads:
            thread.join(_LIMIT_S)

    return exchange


def ways(end: End, socks: Sequence[socket.socket], nbytes: int) -> dict[str, Callable[[], object]]:
    """Return the ways that this system has, after plain sockets."""
    found: dict[str, Callable[[], object]] = {"plain": end.exchange}
    if nbytes >= _SHARED_NBYTES:
        found |= {f"{count} connections": shared(socks[:count], nbytes) for count in (2, _CONNECTIONS)}
    try:
        end.sock.setsockopt(socket.SOL_SOCKET, _SO_ZEROCOPY, 1)
        found["zerocopy"] = end.zerocopy
    except OSError as error:
        print(f"zerocopy is left out: {error}")
    if nbytes <= _TURN_NBYTES // 2:  # else both would wait for room
        found |= {"waiting": end.waiting, "busy poll": lambda: end.waiting(_BUSY_POLL_US)}
    return found


def calls(nbytes: int) -> int:
    """Return how many exchanges are timed together."""
    return max(4, min(100, (8 << 20) // nbytes))


def work(socks: Sequence[socket.socket], nbytes: int, turns: int, told: Any) -> None:
    """Be one end."""
    end = End(socks[0], nbytes)
    found = ways(end, socks, nbytes)
    times: dict[str, list[float]] = {}
    for turn in range(turns + 1):  # the first is for warming up
        for name, call in found.items():
            end.exchange()
            start = time.perf_counter()
            for _ in range(calls(nbytes)):
                call()
            if turn:
                times.setdefault(name, []).append((time.perf_counter() - start) / calls(nbytes) * 1e6)
    told.put((times, end.copied, end.confirmed))


def connected(count: int) -> tuple[list[socket.socket], list[socket.socket]]:
    """Return both ends of some connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        pairs = [(socket.create_connection(server.getsockname()), server.accept()[0]) for _ in range(count)]
    for sock in (sock for pair in pairs for sock in pair):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return [first for first, _ in pairs], [second for _, second in pairs]


def by_ring(program: str, nbytes: int, turns: int) -> dict[str, list[float]]:
    """Return the times of the program in C, by way."""
    both = [
        subprocess.Popen(
            [program, str(sock.fileno()), str(nbytes), str(calls(nbytes)), str(turns)],
            pass_fds=[sock.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        )
        for (sock,) in connected(1)
    ]
    said = [process.communicate(timeout=_LIMIT_S)[0] for process in both]
    lines = [line.split("\t") for line in said[0].splitlines()]
    return {name: [float(each) for each in text.split()] for name, text in lines}


def compiled(folder: str) -> str | None:
    """Return the program in C, or say why there is none."""
    compiler, program = shutil.which("cc"), f"{folder}/io_uring"
    if compiler is None:
        print("io_uring is left out: there is no C compiler")
        return None
    source = str(Path(__file__).with_name("io_uring.c"))
    done = subprocess.run([compiler, "-O2", "-o", program, source], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"io_uring is left out: {done.stderr.splitlines()[0]}")
    return None if done.returncode else program


def show(nbytes: int, times: dict[str, list[float]]) -> None:
    """Print the times of some ways, and how they compare with the first."""
    first = next(iter(times.values()), [])
    for name, each in times.items():
        ratio = statistics.median(b / a for a, b in zip(first, each, strict=True))
        print(f"| {nbytes} | {name} | {statistics.median(each):.1f} | {ratio:.2f} |")


def compare(nbytes: int, turns: int) -> None:
    """Time all ways but the ring."""
    fork = multiprocessing.get_context("fork")
    told = [fork.Queue(), fork.Queue()]
    both = [
        fork.Process(target=work, args=(socks, nbytes, turns, queue), daemon=True)
        for socks, queue in zip(connected(_CONNECTIONS), told, strict=True)
    ]
    for process in both:
        process.start()
    times, copied, confirmed = told[0].get(timeout=_LIMIT_S)
    told[1].get(timeout=_LIMIT_S)
    show(nbytes, times)
    print(f"| {nbytes} | copied nevertheless | {copied} of {confirmed} | |")
    for process in both:
        process.join(_LIMIT_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 16 << 10, 1 << 20, 16 << 20])
    parser.add_argument("--turns", type=int, default=15)
    given = parser.parse_args()
    print("| bytes | way | us | to the first |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(folder)
        for nbytes in given.sizes:
            compare(nbytes, given.turns)
            if program is not None:
                show(nbytes, by_ring(program, nbytes, given.turns))
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
