"""A man in the middle of two hosts, who is told what to do with packets: `python middle.py NAMESPACE NAMESPACE`.

He changes only what carries data between ranks, and makes the checksums right again, so that no system notices:

- `pass`: nothing,
- `flip`: turns one bit around, once,
- `swap`: has two pieces of a packet change places, once,
- `cut`: ends a connection in the name of both ends, once,
- `repeat`: hands each packet on twice,
- `delay`: hands each on late, all as late,
- `reorder`: hands each on by another time late, so that they overtake each other,
- `lose`: keeps every tenth.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from slow_link import Passed, hand_on

_STORE_PORT = 29444
_TCP = 6
_RESET, _ACK = 0x04, 0x10
#: Of packets that carry so much at least one is changed, and not the first of them.
_LEAST_NBYTES, _SPARED = 200, 3
_PIECE_NBYTES = 16
_DELAY_S, _OVERTAKEN_S = 0.1, 0.02


class Packet:
    """A packet of TCP over IPv4 whose payload is of interest."""

    def __init__(self, packet: bytes) -> None:
        self.all = bytearray(packet)
        self.tcp_at = 4 * (packet[0] & 15)
        self.payload_at = self.tcp_at + 4 * (packet[self.tcp_at + 12] >> 4)
        self.nbytes = len(packet) - self.payload_at

    @property
    def connection(self) -> bytes:
        """What tells its direction of its connection from all others."""
        return bytes(self.all[12:20] + self.all[self.tcp_at : self.tcp_at + 4])

    @property
    def end(self) -> int:
        """The number of the byte behind its payload."""
        return int(struct.unpack_from(">I", self.all, self.tcp_at + 4)[0]) + self.nbytes

    def sealed(self) -> bytes:
        """Return it with the checksum that its contents want."""
        self.all[self.tcp_at + 16 : self.tcp_at + 18] = bytes(2)
        segment = self.all[self.tcp_at :]
        text = bytes(self.all[12:20]) + struct.pack(">BBH", 0, _TCP, len(segment)) + segment + bytes(len(segment) % 2)
        total = sum(struct.unpack(f">{len(text) // 2}H", text))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        struct.pack_into(">H", self.all, self.tcp_at + 16, ~total & 0xFFFF)
        return bytes(self.all)

    def resets(self) -> list[Passed]:
        """Return what ends its connection at both ends."""
        ports, sequence, confirmed = struct.unpack_from(">III", self.all, self.tcp_at)
        there = Packet(bytes(self.all[: self.tcp_at + 20]))
        struct.pack_into(">IIIBB", there.all, self.tcp_at, ports, sequence, confirmed, 5 << 4, _RESET | _ACK)
        back = Packet(bytes(there.all))
        back.all[12:20] = self.all[16:20] + self.all[12:16]
        back_ports = (ports & 0xFFFF) << 16 | ports >> 16
        struct.pack_into(">III", back.all, self.tcp_at, back_ports, confirmed, sequence)
        for packet in (there, back):
            struct.pack_into(">H", packet.all, 2, len(packet.all))
            packet.fix_header()
        return [(0.0, there.sealed(), False), (0.0, back.sealed(), True)]

    def fix_header(self) -> None:
        """Make the checksum of the header right, whose length has changed."""
        self.all[10:12] = bytes(2)
        total = sum(struct.unpack_from(f">{self.tcp_at // 2}H", self.all))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        struct.pack_into(">H", self.all, 10, ~total & 0xFFFF)


class Middle:
    """What he does, which changes by what he is told."""

    def __init__(self) -> None:
        self._dice = random.Random(7)
        self._do: Callable[[bytes], Iterator[Passed]] = self._pass
        self._come = 0
        #: How far each connection has come: what is sent again may be there already, and a change of it go unnoticed.
        self._ends: dict[bytes, int] = {}
        #: How many bytes at the end of a packet have not passed before: some may be sent again with what follows them.
        self._new_nbytes = 0

    def heard(self, line: str) -> None:
        """Do something else from now on."""
        if not line:
            sys.exit()
        self._do, self._come = getattr(self, f"_{line.strip()}"), 0
        print("heard", flush=True)

    def pass_on(self, packet: bytes) -> Iterator[Passed]:
        """Tell what becomes of a packet."""
        if not _carries_data(packet):
            return self._pass(packet)
        self._new_nbytes = self._new(Packet(packet))
        return self._do(packet)

    def _new(self, packet: Packet) -> int:
        """Return how many bytes of a packet have not passed here before."""
        before = self._ends.get(packet.connection)
        new = packet.nbytes if before is None else (packet.end - before) % (1 << 32)
        if new >= 1 << 31:
            return 0
        self._ends[packet.connection] = packet.end
        return min(new, packet.nbytes)

    def _pass(self, packet: bytes) -> Iterator[Passed]:
        yield 0.0, packet, False

    def _once(self, packet: bytes, change: Callable[[Packet], list[Passed]]) -> Iterator[Passed]:
        """Change one of the packets that are long."""
        changed = Packet(packet)
        self._come += changed.nbytes >= _LEAST_NBYTES
        if self._come <= _SPARED or not self._new_nbytes:
            yield from self._pass(packet)
            return
        self._do = self._pass
        yield from change(changed)

    def _flip(self, packet: bytes) -> Iterator[Passed]:
        def flip(changed: Packet) -> list[Passed]:
            at = len(changed.all) - 1 - self._dice.randrange(self._new_nbytes)
            changed.all[at] ^= 1 << self._dice.randrange(8)
            return [(0.0, changed.sealed(), False)]

        return self._once(packet, flip)

    def _swap(self, packet: bytes) -> Iterator[Passed]:
        def swap(changed: Packet) -> list[Passed]:
            first, last = changed.payload_at, len(changed.all) - _PIECE_NBYTES
            pieces = [slice(at, at + _PIECE_NBYTES) for at in (first, last)]
            texts = [bytes(changed.all[piece]) for piece in pieces]
            for piece, text in zip(pieces, reversed(texts), strict=True):
                changed.all[piece] = text
            return [(0.0, changed.sealed(), False)]

        return self._once(packet, swap)

    def _cut(self, packet: bytes) -> Iterator[Passed]:
        return self._once(packet, Packet.resets)

    def _repeat(self, packet: bytes) -> Iterator[Passed]:
        yield 0.0, packet, False
        yield 0.0, packet, False

    def _delay(self, packet: bytes) -> Iterator[Passed]:
        yield _DELAY_S, packet, False

    def _reorder(self, packet: bytes) -> Iterator[Passed]:
        yield self._dice.uniform(0, _OVERTAKEN_S), packet, False

    def _lose(self, packet: bytes) -> Iterator[Passed]:
        if self._dice.random() >= 0.1:
            yield 0.0, packet, False


def _carries_data(packet: bytes) -> bool:
    """Tell whether a packet is one between ranks, and no ask or answer of the store."""
    if packet[0] >> 4 != 4 or packet[9] != _TCP:
        return False
    at = 4 * (packet[0] & 15)
    return _STORE_PORT not in struct.unpack_from(">HH", packet, at)


if __name__ == "__main__":
    middle = Middle()
    hand_on(sys.argv[1:3], middle.pass_on, middle.heard)
