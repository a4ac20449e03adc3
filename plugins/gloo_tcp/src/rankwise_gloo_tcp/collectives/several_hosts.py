"""Groups whose ranks are on several hosts, more than one on some: shared memory inside, the network between.

Each host has a group of its own. What the ranks are about to do goes from all ranks of a host to its first, from there
to the first of each other host, and back; small data goes with it. The ranks of a host
divide large reductions among themselves; each talks to its counterparts on other hosts, so all use the network at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rankwise.backends import (
    COLLECTIVE_TAG,
    FINGERPRINT_TAG,
    Array,
    Deadline,
    Fingerprint,
    ReduceOp,
    Work,
    accumulation_dtype,
    mismatch,
)
from rankwise.collective import derived
from rankwise.collective.fingerprint import counts, same_call
from rankwise.errors import DistError
from rankwise_gloo_tcp.collectives import streams
from rankwise_gloo_tcp.collectives.copying import pieces
from rankwise_gloo_tcp.collectives.subset import Subset
from rankwise_gloo_tcp.collectives.ways import Ways

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

__all__ = ["SeveralHosts"]

_RECORD_NBYTES = 40
#: How much data goes with the comparison of the calls.
_ALONG_NBYTES = 2048
#: How much of an array is under way at a time; a rank's scratch memory is a few times this.
_PIECE_NBYTES = 4 << 20


class SeveralHosts(Ways):
    """The ways of a group on several hosts.

    Args:
        comm: The group.
        hosts: The ranks of each host.
        local: The group of this host, which is closed with these ways.
    """

    def __init__(self, comm: GlooCommunicator, hosts: list[list[int]], local: GlooCommunicator) -> None:
        super().__init__(comm)
        self._hosts = hosts
        self.local: GlooCommunicator = local
        self._here = next(index for index, host in enumerate(hosts) if comm.rank in host)
        self._place = hosts[self._here].index(comm.rank)
        self._even = len({len(host) for host in hosts}) == 1
        self._most = max(map(len, hosts))
        local.on_failure = comm.fail
        local.engine.seat.in_background = comm._order.serves_here
        first = [host[0] for host in hosts]
        self.firsts = Subset(comm.engine, first, comm.context) if self._place == 0 else None
        across = [host[self._place] for host in hosts] if self._even else first
        #: The ranks with whom this one divides what comes from other hosts.
        self.across = Subset(comm.engine, across, comm.context) if self.rank in across else None

    def close(self) -> None:
        """Say good-bye to the peers on this host."""
        self.local.on_failure = None
        self.local.shutdown()

    def give_up(self, error: DistError) -> None:
        """End what is pending on this host."""
        self.local.give_up(error)

    def _choose(self, op: str, nbytes: int) -> str:
        name = self.comm.selection.choose_mixed(op, nbytes, self.size)
        return "hosts" if name == "along" and nbytes > _ALONG_NBYTES else name

    # ------------------------------------------------------------------ collectives

    def broadcast(self, array: Array, root: int, timeout_s: float, async_op: bool = False) -> Work:
        """Copy the root's array into everyone's."""
        if type(array) is not np.ndarray:
            return super().broadcast(array, root, timeout_s, async_op)
        name = self._choose("broadcast", array.nbytes)
        if name == "derived":
            return super().broadcast(array, root, timeout_s, async_op)
        body = _Small(array, root=root) if name == "along" else partial(self._broadcast, array, root)
        return self.collective(Fingerprint.of("broadcast", array, root=root), body, timeout_s, async_op)

    def all_reduce(self, array: Array, op: ReduceOp, timeout_s: float, async_op: bool = False) -> Work:
        """Reduce the arrays of all ranks, element by element, into everyone's array."""
        if type(array) is not np.ndarray:
            return super().all_reduce(array, op, timeout_s, async_op)
        nbytes = array.size * accumulation_dtype(op.name, array.dtype).itemsize
        name = self._choose("all_reduce", nbytes)
        if name == "derived":
            return super().all_reduce(array, op, timeout_s, async_op)
        body = _Small(array, op) if name == "along" else partial(self._all_reduce, array, op)
        return self.collective(Fingerprint.of("all_reduce", array, op), body, timeout_s, async_op)

    def all_gather(self, parts: Sequence[Array], array: Array, timeout_s: float, async_op: bool = False) -> Work:
        """Copy rank i's array into everyone's `parts[i]`."""
        if not self._even or self._choose("all_gather", 0) == "derived":
            return super().all_gather(parts, array, timeout_s, async_op)
        call = Fingerprint.of("all_gather", array, parts=parts)
        return self.collective(call, partial(self._all_gather, parts, array), timeout_s, async_op)

    def reduce_scatter(
        self, array: Array, parts: Sequence[Array], op: ReduceOp, timeout_s: float, async_op: bool = False
    ) -> Work:
        """Reduce everyone's `parts[i]` into rank i's array."""
        plain = accumulation_dtype(op.name, array.dtype) == array.dtype and op.factor is None
        if not (self._even and plain) or self._choose("reduce_scatter", 0) == "derived":
            return super().reduce_scatter(array, parts, op, timeout_s, async_op)
        call = Fingerprint.of("reduce_scatter", array, op, parts=parts)
        return self.collective(call, partial(self._reduce_scatter, array, parts, op), timeout_s, async_op)

    # ------------------------------------------------------------------ comparing the calls

    def carry_out(self, fingerprint: Fingerprint, body: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls of all ranks, host by host, with small data along, and run the collective."""
        small = body if isinstance(body, _Small) else None
        slot = np.zeros(_RECORD_NBYTES + _ALONG_NBYTES, np.uint8)
        slot[:_RECORD_NBYTES] = np.frombuffer(fingerprint.record(self.rank, sequence), np.uint8)
        if small is not None:
            small.offer(slot[_RECORD_NBYTES:], self.rank)
        slots = np.empty((self.local.size, slot.size), np.uint8)
        self.local.all_gather(list(slots), slot, deadline.remaining())
        answer = np.zeros(_RECORD_NBYTES * self.size + _ALONG_NBYTES, np.uint8)
        records = answer[:-_ALONG_NBYTES].reshape(self.size, _RECORD_NBYTES)
        if self.firsts is not None:
            self._ask_others(self.firsts, slots, records, answer[-_ALONG_NBYTES:], small, deadline)
        self.local.broadcast(answer, 0, deadline.remaining())
        rows = [record.tobytes() for record in records]
        if not same_call(rows):
            raise mismatch(self.comm, fingerprint, sequence, deadline)
        if small is not None:
            small.take(answer[-_ALONG_NBYTES:], self.rank, self.size)
        else:
            body(deadline, counts(rows))

    def _ask_others(
        self, firsts: Subset, slots: Array, records: Array, along: Array, small: _Small | None, deadline: Deadline
    ) -> None:
        """Exchange the records of whole hosts, and what data goes along; of hosts that differ it makes no sense."""
        head = _RECORD_NBYTES * self._most
        rows = np.zeros((len(self._hosts), head + _ALONG_NBYTES), np.uint8)
        mine = rows[self._here]
        mine[: _RECORD_NBYTES * len(slots)].reshape(len(slots), _RECORD_NBYTES)[:] = slots[:, :_RECORD_NBYTES]
        if small is not None:
            small.combine(slots[:, _RECORD_NBYTES:], self._hosts[self._here], mine[head:])
        derived.all_gather(firsts, list(rows), mine, deadline, tag=FINGERPRINT_TAG)
        for host, row in zip(self._hosts, rows, strict=True):
            records[host] = row[: _RECORD_NBYTES * len(host)].reshape(len(host), _RECORD_NBYTES)
        if small is not None:
            small.combine(rows[:, head:], [host[0] for host in self._hosts], along, self._home(small.root))

    def _home(self, rank: int) -> int:
        """Return the first rank of the host that a rank is on."""
        return next((host[0] for host in self._hosts if rank in host), -1)

    # ------------------------------------------------------------------ large data

    def _all_reduce(self, array: Array, op: ReduceOp, deadline: Deadline, counts: object) -> None:
        plain = accumulation_dtype(op.name, array.dtype) == array.dtype and op.factor is None
        adding = ReduceOp.SUM if op.name in ("AVG", "PREMUL_SUM") else op
        for piece in pieces(array.reshape(-1), _PIECE_NBYTES):
            total = piece if plain else op.accumulator(piece)
            self._reduce_piece(total, adding, deadline)
            if not plain or op.name == "AVG":
                op.finish(total, piece, self.size)

    def _reduce_piece(self, total: Array, op: ReduceOp, deadline: Deadline) -> None:
        local = self.local
        if not self._even:
            local.reduce(total, op, 0, deadline.remaining())
            if self.across is not None:
                streams.all_reduce(self.across, total, op, deadline)
            local.broadcast(total, 0, deadline.remaining())
            return
        shares = streams.cut(total, local.size)
        mine = np.empty_like(shares[self._place])
        local.reduce_scatter(mine, shares, op, deadline.remaining())
        if self.across is not None:
            streams.all_reduce(self.across, mine, op, deadline)
        local.all_gather(shares, mine, deadline.remaining())

    def _broadcast(self, array: Array, root: int, deadline: Deadline, counts: object) -> None:
        home = next(index for index, host in enumerate(self._hosts) if root in host)
        # Whoever brings it to this host: the root itself, or the first rank.
        speaker = self._hosts[home].index(root) if self._here == home else 0
        speakers = [root if host is self._hosts[home] else host[0] for host in self._hosts]
        cut = list(pieces(array.reshape(-1), _PIECE_NBYTES))
        if self._place == speaker:
            between = Subset(self.comm.engine, speakers, self.comm.context)
            if between.rank == home:
                sends = [
                    between.send_bytes(memoryview(piece.view(np.uint8)), peer, COLLECTIVE_TAG, True)
                    for piece in cut
                    for peer in range(between.size)
                    if peer != home
                ]
            else:
                coming = [
                    between.receive_bytes(memoryview(piece.view(np.uint8)), home, COLLECTIVE_TAG, True) for piece in cut
                ]
        for index, piece in enumerate(cut):
            if self._place == speaker and self._here != home:
                streams.wait_for(self.comm.engine, coming[index : index + 1], deadline)
            self.local.broadcast(piece, speaker, deadline.remaining())
        if self._place == speaker and self._here == home:
            streams.wait_for(self.comm.engine, sends, deadline)

    def _all_gather(self, parts: Sequence[Array], array: Array, deadline: Deadline, counts: object) -> None:
        assert self.across is not None  # all ranks have counterparts where hosts are even
        counterparts = [parts[host[self._place]] for host in self._hosts]
        derived.all_gather(self.across, counterparts, array, deadline)
        for host, part in zip(self._hosts, counterparts, strict=True):
            self.local.all_gather([parts[rank] for rank in host], part, deadline.remaining())

    def _reduce_scatter(
        self, array: Array, parts: Sequence[Array], op: ReduceOp, deadline: Deadline, counts: object
    ) -> None:
        assert self.across is not None
        adding = ReduceOp.SUM if op.name == "AVG" else op
        flat, flats = array.reshape(-1), [part.reshape(-1) for part in parts]
        step = max(1, _PIECE_NBYTES // (len(self._hosts) * array.itemsize))
        for begin in range(0, max(part.size for part in flats), step):
            cuts = [part[begin : begin + step] for part in flats]
            sums = []
            for host in self._hosts:
                sums.append(np.empty_like(cuts[host[self._place]]))
                self.local.reduce_scatter(sums[-1], [cuts[rank] for rank in host], adding, deadline.remaining())
            mine = sums[self._here]
            streams.reduce_scatter(self.across, mine, sums, adding, deadline)
            target = flat[begin : begin + step]
            target[...] = mine
            if op.name == "AVG":
                op.finish(target, target, self.size)


class _Small:
    """A broadcast or an all_reduce whose data goes with the comparison of the calls."""

    def __init__(self, array: Array, op: ReduceOp | None = None, root: int = -1) -> None:
        self.array, self.op, self.root = array, op, root
        self.mine = array.reshape(-1) if op is None else op.accumulator(array)

    def __call__(self, deadline: Deadline, counts: Sequence[int]) -> None:
        """Refuse: the data goes with the comparison."""
        raise NotImplementedError

    def offer(self, room: Array, rank: int) -> None:
        """Write this rank's data."""
        if self.root in (-1, rank):
            self._view(room)[:] = self.mine

    def combine(self, rooms: Array, ranks: Sequence[int], result: Array, root: int | None = None) -> None:
        """Write what the data of several ranks comes to."""
        total = self._view(result)
        if self.op is None:
            wanted = self.root if root is None else root
            if wanted in ranks:
                total[:] = self._view(rooms[ranks.index(wanted)])
            return
        total[:] = self._view(rooms[0])
        adding = ReduceOp.SUM if self.op.name in ("AVG", "PREMUL_SUM") else self.op
        for room in rooms[1:]:
            adding.combine(total, self._view(room))

    def take(self, result: Array, rank: int, size: int) -> None:
        """Put the result into the array; that of the root may be read-only."""
        total = self._view(result)
        if self.op is not None:
            self.op.finish(total, self.array, size)
        elif rank != self.root:
            self.array[...] = total.reshape(self.array.shape)

    def _view(self, room: Array) -> Array:
        return room[: self.mine.nbytes].view(self.mine.dtype)
