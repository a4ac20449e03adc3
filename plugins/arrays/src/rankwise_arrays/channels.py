"""A channel: one rank puts in objects and arrays, and all others of a group get them, in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import rankwise as dist
from rankwise.errors import DistError
from rankwise_arrays.kinds import Group, is_member
from rankwise_arrays.packets import Packet, empty_box, opened, packed, rest_of

_VALUE, _END = range(2)


def channel(src: int = 0, group: Group = None, *, pickle: bool = False, timeout: Any = None) -> Channel:
    """Make a channel in which one rank of a group writes and all others read; all of them call.

    The channel has its own group, so its values never meet another call.

    Args:
        src: Who writes, as a global rank.
        group: The group; None is the default group.
        pickle: Send objects of any type, as pickles.
        timeout: How long a `put` waits for the slowest reader and a `get` for the writer, in seconds or as a
            `timedelta`; None is the group's time-out.

    Returns:
        The channel, to be used in a `with` block.

    Raises:
        ValueError: This rank or the writer is not in the group.

    Examples:
        >>> with dist.channel(src=0) as channel:
        ...     if channel.writes:
        ...         channel.put({"step": 1})
        ...         channel.put(np.arange(3))
        ...     else:
        ...         values = [*channel]  # until the writer closes it
    """
    if not is_member(group):
        raise ValueError("channel: this rank is not in the group")
    ranks = dist.get_process_group_ranks(group)
    if src not in ranks:
        raise ValueError(f"channel: rank {src} is not in the group")
    made = dist.split_group(group, [[*range(len(ranks))]], timeout=timeout, group_desc="channel")
    return Channel(src, made, pickle)


class Channel:
    """One end of a channel; see `channel`.

    Attributes:
        writes: Whether this rank is the writer.
    """

    def __init__(self, src: int, group: Group, pickle: bool) -> None:
        self.writes, self._src = dist.get_rank() == src, src
        self._group, self._pickle, self._is_open = group, pickle, True

    def __repr__(self) -> str:
        does = "writes" if self.writes else "reads"
        return f"<Channel of rank {self._src}, {'open' if self._is_open else 'closed'}; this rank {does}>"

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the channel; if the block raises, abort it, so that nobody waits for this rank."""
        if kind is None:
            self.close()
        else:
            with suppress(DistError, ValueError):
                dist.abort_process_group(self._group)

    def put(self, value: Any) -> None:
        """Send all readers an object or an array; wait for readers that have not taken the previous one.

        Args:
            value: What to send; NumPy arrays are sent as such.

        Raises:
            ValueError: The channel has been closed, or this rank is a reader.
            TypeError: The value is of a type that does not travel.
            PeerDiedError: A reader has died; the error names it.
            DistTimeoutError: A reader has not come in time; the error names it.
        """
        if not self.writes:
            raise ValueError(f"put: rank {self._src} writes in this channel, and rank {dist.get_rank()} reads")
        self._check_open("put")
        self._send(Packet(_VALUE, 0, value))

    def get(self) -> Any:
        """Return the next value.

        Raises:
            EOFError: The writer has closed the channel.
            ValueError: The channel has been closed here, or this rank is the writer.
            PeerDiedError: The writer, or another reader, has died; the error names it.
            DistTimeoutError: Nothing has come in time.
        """
        if self.writes:
            raise ValueError(f"get: rank {self._src} writes in this channel")
        self._check_open("get")
        box = empty_box()
        dist.broadcast(box, self._src, self._group)
        rest = rest_of(box)
        if rest is not None:
            dist.broadcast(rest, self._src, self._group)
        packet = opened(box, rest, self._pickle)
        if packet.word == _END:
            self._leave()
            raise EOFError(f"get: rank {self._src} has closed the channel")
        return packet.value

    def __iter__(self) -> Iterator[Any]:
        """Yield values until the writer closes the channel."""
        while self._is_open:
            try:
                value = self.get()
            except EOFError:
                return
            yield value

    def close(self) -> None:
        """Close this end: the writer tells the readers so, and a reader takes what is still to come."""
        if not self._is_open:
            return
        if self.writes:
            self._send(Packet(_END, 0, None))
            self._leave()
            return
        for _ in self:
            pass

    def _send(self, packet: Packet) -> None:
        for part in packed(packet, self._pickle):
            if part is not None:
                dist.broadcast(part, self._src, self._group)

    def _leave(self) -> None:
        self._is_open = False
        dist.destroy_process_group(self._group)

    def _check_open(self, call: str) -> None:
        if not self._is_open:
            raise ValueError(f"{call}: this channel has been closed")
