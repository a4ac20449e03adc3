"""A slow and lossy link between two namespaces, for kernels without `netem`: packets pass through this process.

    python slow_link.py NAMESPACE NAMESPACE DELAY_MS LOSS_PERCENT

It makes an interface `eth0` in each namespace, says "ready", and hands packets on until it is ended.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import os
import random
import selectors
import struct
import sys
import time
from collections.abc import Callable, Iterable

#: After how many seconds which packet goes on, or back to where it came from.
Passed = tuple[float, bytes, bool]

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_PACKET_NBYTES = 65536


def main(namespaces: list[str], delay_s: float, loss: float) -> None:
    """Delay each packet, and lose some."""
    dice = random.Random(1)
    hand_on(namespaces, lambda packet: [(delay_s, packet, False)] if dice.random() >= loss else [])


def hand_on(
    namespaces: list[str], pass_on: Callable[[bytes], Iterable[Passed]], heard: Callable[[str], object] | None = None
) -> None:
    """Hand packets on for ever.

    Args:
        namespaces: Whose packets.
        pass_on: Returns what becomes of a packet: after how long what is handed on, or sent back.
        heard: Told each line that is written to this process; it ends with them.
    """
    ends = [_interface(name) for name in namespaces]
    under_way: list[tuple[float, int, int, bytes]] = []
    numbers = itertools.count()
    selector = selectors.DefaultSelector()
    for end, other in zip(ends, reversed(ends), strict=True):
        os.set_blocking(end, False)
        selector.register(end, selectors.EVENT_READ, other)
    if heard is not None:
        selector.register(sys.stdin, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        timeout = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        for key, _ in selector.select(timeout):
            if heard is not None and key.fileobj is sys.stdin:
                heard(sys.stdin.readline())
                continue
            for delay_s, packet, goes_back in pass_on(os.read(key.fd, _PACKET_NBYTES)):
                to = key.fd if goes_back else key.data
                heapq.heappush(under_way, (time.monotonic() + delay_s, next(numbers), to, packet))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, end, packet = heapq.heappop(under_way)
            try:
                os.write(end, packet)
            except OSError:
                continue  # that interface is down


def _interface(namespace: str) -> int:
    """Make `eth0` in a namespace, and return the descriptor of its packets."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}", "rb") as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", b"eth0", _IFF_TUN | _IFF_NO_PI))
    return descriptor


if __name__ == "__main__":
    main(sys.argv[1:3], float(sys.argv[3]) / 1e3, float(sys.argv[4]) / 100)
