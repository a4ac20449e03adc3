"""How the ranks of several hosts compare their calls, with small data along.

Each rank writes its record, and its data behind it, for the first rank of its host. The first ranks exchange what their
hosts have written, and write all records and the result for the others. Memory and messages are prepared once for the
group, and the views of a kind of call once for that; so a call that comes again only writes, waits and reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rankwise.backends import (
    FINGERPRINT_TAG,
    Array,
    Call,
    Deadline,
    Fingerprint,
    accumulation_dtype,
    as_bytes,
    mismatch,
)
from rankwise.backends import derived_collectives as derived
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.call import BoardCall, Meet
from rankwise_gloo_tcp.collectives.one_host import AtBoard, OneHost
from rankwise_gloo_tcp.collectives.opening import FEW_RANKS, RECORD_NBYTES, SMALL_NBYTES, Opening
from rankwise_gloo_tcp.collectives.subset import Subset

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

__all__ = ["ALONG_NBYTES", "Relay", "Relayed"]

#: How much data goes with the comparison of the calls.
ALONG_NBYTES = 2048

#: Carries out what all ranks of this host do together.
Step = Callable[[Deadline], None]


class Relay:
    """The comparison of one group.

    Args:
        comm: The group.
        hosts: The ranks of each host.
        local: The group of this host.
        firsts: The first ranks of all hosts, on one of them.

    Attributes:
        comm: The group.
        slot: What this rank writes.
        slots: What the ranks of this host have written, at the first.
        rows: What the hosts have written, at the first.
        answer: All records, and the result.
    """

    def __init__(
        self, comm: GlooCommunicator, hosts: list[list[int]], local: GlooCommunicator, firsts: Subset | None
    ) -> None:
        self.comm, self.hosts, self._firsts = comm, hosts, firsts
        self.rank, self.size = comm.rank, comm.size
        self.here = next(index for index, host in enumerate(hosts) if comm.rank in host)
        head = RECORD_NBYTES * max(map(len, hosts))
        self.slot = np.zeros(RECORD_NBYTES + ALONG_NBYTES, np.uint8)
        self.slots = np.zeros((local.size, self.slot.size), np.uint8)
        self.rows = np.zeros((len(hosts), head + ALONG_NBYTES), np.uint8)
        self.answer = np.zeros(RECORD_NBYTES * comm.size + ALONG_NBYTES, np.uint8)
        self._record = as_bytes(self.slot)[:RECORD_NBYTES]
        self._records = self.answer[:-ALONG_NBYTES].reshape(self.size, RECORD_NBYTES)
        self._gather, self._spread = _steps(local, self)
        self._swap = None if firsts is None else self._swapped(comm, firsts)

    def compare(self, record: bytes, relayed: Relayed | None, deadline: Deadline) -> bytes:
        """Give this rank's record to all others, with what the slot holds behind it, and return all records."""
        self._record[:] = record
        self._gather(deadline)
        if self._firsts is not None:
            self.slots[0] = self.slot
            self._ask_others(self._firsts, relayed, deadline)
        self._spread(deadline)
        return self._records.tobytes()

    def _ask_others(self, firsts: Subset, relayed: Relayed | None, deadline: Deadline) -> None:
        """Exchange what whole hosts have written; of hosts that differ the data makes no sense."""
        mine = self.rows[self.here]
        count = RECORD_NBYTES * len(self.slots)
        mine[:count].reshape(self.slots.shape[0], RECORD_NBYTES)[:] = self.slots[:, :RECORD_NBYTES]
        if relayed is not None:
            relayed.combine(relayed.of_ranks, relayed.here)
        if self._swap is not None:
            self._swap(deadline)
        else:
            derived.all_gather(firsts, list(self.rows), mine, deadline, tag=FINGERPRINT_TAG)
        for host, row in zip(self.hosts, self.rows, strict=True):
            self._records[host] = row[: RECORD_NBYTES * len(host)].reshape(len(host), RECORD_NBYTES)
        if relayed is not None:
            relayed.combine(relayed.of_hosts, relayed.result)

    def _swapped(self, comm: GlooCommunicator, firsts: Subset) -> Step | None:
        """Return what exchanges the rows as one small message each, where they are small and hosts are few."""
        nbytes, size = self.rows.shape[1] - RECORD_NBYTES, firsts.size
        if size > FEW_RANKS or nbytes > SMALL_NBYTES:
            return None
        opening = Opening(comm.engine, firsts.rank, size, [host[0] for host in self.hosts])
        plan = opening.plan([nbytes] * size, [nbytes] * size)
        mine = self.rows[self.here]
        others = [(self.rows[peer], np.frombuffer(room, np.uint8)) for peer, room in opening.received(plan)]

        def swap(deadline: Deadline) -> None:
            opening.swap(plan, [mine.tobytes()] * size, deadline)
            for row, room in others:
                row[:] = room

        return swap


class Relayed:
    """One kind of call, whose data goes along if it has any.

    Attributes:
        fingerprint: What it is about.
        mine: This rank's data, as views of the relay's memory are all of these.
        of_ranks: What this host's is made of: the data of its ranks, of a broadcast that of the root if it is here.
        here: This host's.
        of_hosts: What the result is made of.
        result: The result.
    """

    def __init__(self, relay: Relay, call: Call) -> None:
        self.fingerprint, self._op = call.fingerprint, call.reduce_op
        about = self.fingerprint.record(relay.rank, 0)[8:]
        #: What each rank says of the call, behind its number: the same on all.
        self.about, self._relay = about, relay
        self._plain, self.mine = False, relay.slot[:0]
        self.here = self.result = self.mine
        self.of_ranks: list[Array] = []
        self.of_hosts: list[Array] = []
        if call.array is not None:
            self._view(relay, call)

    def _view(self, relay: Relay, call: Call) -> None:
        array, op = call.array, call.reduce_op
        dtype = array.dtype if op is None else accumulation_dtype(op.name, array.dtype)

        def view(memory: Array) -> Array:
            return memory[: array.size * dtype.itemsize].view(dtype).reshape(array.shape)

        head = relay.rows.shape[1] - ALONG_NBYTES
        self._plain = op is not None and op.base is op and dtype == array.dtype
        self.mine, self.result = view(relay.slot[RECORD_NBYTES:]), view(relay.answer[-ALONG_NBYTES:])
        self.here = view(relay.rows[relay.here][head:])
        self.of_ranks = [view(slot[RECORD_NBYTES:]) for slot in relay.slots]
        self.of_hosts = [view(row[head:]) for row in relay.rows]
        if op is None:  # a broadcast: all comes from the root
            home = next(index for index, host in enumerate(relay.hosts) if call.root in host)
            self.of_hosts = [self.of_hosts[home]]
            at_home = home == relay.here
            self.of_ranks = [self.of_ranks[relay.hosts[home].index(call.root)]] if at_home else []

    def bind(self, call: Call) -> Any:
        """Return array and op; of a broadcast what is sent and what is received, each in a list; of a barrier None."""
        if call.reduce_op is not None:
            return call.array, call.reduce_op
        if call.array is None:
            return None
        return ([call.array], []) if call.root == self._relay.rank else ([], [call.array])

    def run(self, given: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls, and carry this one out."""
        op, record = self._op, sequence.to_bytes(8, "little") + self.about
        if op is not None:
            array, op = given
            self.mine[...] = array if self._plain else op.accumulator(array).reshape(array.shape)
        elif given is not None and given[0]:
            self.mine[...] = given[0][0]
        if self._relay.compare(record, self, deadline) != record * self._relay.size:
            raise mismatch(self._relay.comm, self.fingerprint, sequence, deadline)
        if self._plain:
            array[...] = self.result
        elif op is not None:
            op.finish(self.result, array, self._relay.size)
        elif given is not None and given[1]:
            given[1][0][...] = self.result

    def combine(self, views: Sequence[Array], total: Array) -> None:
        """Write what the data of several ranks, or of several hosts, comes to."""
        if self._op is None or len(views) == 1:
            for view in views:
                total[...] = view
            return
        merge = self._op.merge  # AVG and PREMUL_SUM add
        merge(views[0], views[1], total)
        for view in views[2:]:
            merge(total, view, total)


class _Step(BoardCall):
    """Something that some ranks of a host write for some others.

    Args:
        name: What it is called.
        board: The board.
        write: What this rank writes, if anything.
        read: Where to put what ranks have written, by rank.
    """

    def __init__(self, name: str, board: Board, write: Array | None, read: dict[int, Array]) -> None:
        super().__init__(Fingerprint(name))
        self._write, self._areas = write, board.areas()
        self._now = self._areas[0]
        self._read = list(read.items())

    def offer(self, board: Board, given: Any) -> None:
        self._now = self._areas[board.flip()]
        if self._write is not None:
            self._now[board.rank][: self._write.size] = self._write

    def take(self, board: Board, meet: Meet, deadline: Deadline, given: Any) -> None:
        for rank, target in self._read:
            target[:] = self._now[rank][: target.size]


def _steps(local: GlooCommunicator, relay: Relay) -> tuple[Step, Step]:
    """Return what brings the slots of this host to its first rank, and what brings the answer from there to all."""
    slots, answer, first = list(relay.slots), relay.answer, local.rank == 0
    ways, board = local.ways, local.board
    if board is None or not isinstance(ways, OneHost) or max(relay.slot.size, answer.size) > board.area_nbytes:
        gather, spread = Call("all_gather", relay.slot, outs=slots), Call("broadcast", answer, root=0)
        return (
            lambda deadline: _run(local, gather, deadline),
            lambda deadline: _run(local, spread, deadline),
        )
    others = {rank: slots[rank] for rank in range(1, local.size)} if first else {}
    gathering = _Step("gather records", board, relay.slot, others)
    spreading = _Step("spread records", board, answer if first else None, {} if first else {0: answer})
    return partial(_meet, local, AtBoard(ways, gathering)), partial(_meet, local, AtBoard(ways, spreading))


def _run(local: GlooCommunicator, call: Call, deadline: Deadline) -> None:
    local.run(call, deadline.remaining())


def _meet(local: GlooCommunicator, step: AtBoard, deadline: Deadline) -> None:
    if local.failure is not None:
        raise local.failure.with_traceback(None)
    step.run(None, next(local._sequence), deadline)
