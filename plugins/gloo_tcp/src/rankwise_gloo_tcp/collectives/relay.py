"""How the ranks of several hosts compare their calls, with small data along.

Each rank writes its record, and its data behind it, for the first rank of its host. The first ranks exchange what their
hosts have written, and write all records and the result for the others. Memory and messages are prepared once for the
group, and the views of a kind of call once for that; so a call that comes again only writes, waits and reads.
"""

from __future__ import annotations

import time
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
from rankwise.errors import DistTimeoutError
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.call import BoardCall, Meet
from rankwise_gloo_tcp.collectives.one_host import AtBoard, OneHost
from rankwise_gloo_tcp.collectives.opening import FEW_RANKS, RECORD_NBYTES, Opening, Swap, inline_nbytes
from rankwise_gloo_tcp.collectives.subset import Subset
from rankwise_gloo_tcp.collectives.tables import along_nbytes

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

__all__ = ["Relay", "Relayed", "whom_the_first_awaits"]

#: How long after a time-out the first rank of a host may still say for whom it waits.
_HEARD_S = 0.2


#: Carries out what all ranks of this host do together, with so many bytes of data along.
Step = Callable[[int, Deadline], None]


class Relay:
    """The comparison of one group.

    Args:
        comm: The group.
        hosts: The ranks of each host.
        local: The group of this host.
        firsts: The first ranks of all hosts, on one of them.

    Attributes:
        comm: The group.
        along_nbytes: How much data goes along at the most.
        slot: What this rank writes.
        slots: What the ranks of this host have written, at the first.
        rows: What the hosts have written, at the first.
        answer: All records, and the result.
        opening: What the first ranks swap the rows by; None on others, and where hosts are many.
        head: How long the records of a host are.
        gathering, spreading: The steps at this host's board; None where it has none.
    """

    def __init__(
        self, comm: GlooCommunicator, hosts: list[list[int]], local: GlooCommunicator, firsts: Subset | None
    ) -> None:
        self.comm, self.hosts, self._firsts = comm, hosts, firsts
        self.rank, self.size = comm.rank, comm.size
        self.here = next(index for index, host in enumerate(hosts) if comm.rank in host)
        self.head = head = RECORD_NBYTES * max(map(len, hosts))
        self.along_nbytes = along = along_nbytes(len(hosts))
        self.slot = np.zeros(RECORD_NBYTES + along, np.uint8)
        self.slots = np.zeros((local.size, self.slot.size), np.uint8)
        self.rows = np.zeros((len(hosts), head + along), np.uint8)
        self.answer = np.zeros(RECORD_NBYTES * comm.size + along, np.uint8)
        self._record = as_bytes(self.slot)[:RECORD_NBYTES]
        self._records = self.answer[:-along].reshape(self.size, RECORD_NBYTES)
        self.gathering: _Step | None = None
        self.spreading: _Step | None = None
        self._gather, self._spread = self._steps(local)
        self.opening = None if firsts is None else self._opened(comm, firsts)
        self._bare = self.plan([0] * len(hosts))

    def compare(self, record: bytes, relayed: Relayed | None, deadline: Deadline) -> bytes:
        """Give this rank's record to all others, with what the slot holds behind it, and return all records."""
        nbytes = 0 if relayed is None else relayed.nbytes
        self._record[:] = record
        self._gather(nbytes, deadline)
        if self._firsts is not None:
            self.slots[0] = self.slot
            self._ask_others(self._firsts, relayed, deadline)
        self._spread(nbytes, deadline)
        return self._records.tobytes()

    def _ask_others(self, firsts: Subset, relayed: Relayed | None, deadline: Deadline) -> None:
        """Exchange what whole hosts have written; of hosts that differ the data makes no sense."""
        mine = self.rows[self.here]
        count = RECORD_NBYTES * len(self.slots)
        mine[:count].reshape(self.slots.shape[0], RECORD_NBYTES)[:] = self.slots[:, :RECORD_NBYTES]
        if relayed is not None:
            relayed.combine(relayed.of_ranks, relayed.here)
        plan = self._bare if relayed is None else relayed.plan
        if plan is None:
            derived.all_gather(firsts, list(self.rows), mine, deadline, tag=FINGERPRINT_TAG)
        else:
            self._swap(plan, mine, deadline)
        for host, row in zip(self.hosts, self.rows, strict=True):
            self._records[host] = row[: RECORD_NBYTES * len(host)].reshape(len(host), RECORD_NBYTES)
        if relayed is not None:
            relayed.combine(relayed.of_hosts, relayed.result)

    def plan(self, along: Sequence[int]) -> Swap | None:
        """Return how the first ranks swap rows with so many bytes of data from each host; None if they do not swap."""
        if self.opening is None:
            return None
        lengths = [self.head - RECORD_NBYTES + nbytes for nbytes in along]
        return self.opening.plan([lengths[self.here]] * len(along), lengths)

    def _opened(self, comm: GlooCommunicator, firsts: Subset) -> Opening | None:
        if firsts.size > FEW_RANKS or self.rows.shape[1] > inline_nbytes(firsts.size):
            return None
        return Opening(comm.engine, firsts.rank, firsts.size, [host[0] for host in self.hosts])

    def _swap(self, plan: Swap, mine: Array, deadline: Deadline) -> None:
        """Swap the rows as one message each."""
        opening = self.opening
        assert opening is not None  # it has made the plan
        row = as_bytes(mine)[: RECORD_NBYTES + plan.sent]
        if plan.small:
            opening.swap(plan, [bytes(row)] * len(self.hosts), deadline)
        else:
            data = row[RECORD_NBYTES:]
            opening.swap_long(bytes(row[:RECORD_NBYTES]), [data] * len(self.hosts), deadline)
        for peer, room in opening.received(plan):
            self.rows[peer][: len(room)] = np.frombuffer(room, np.uint8)

    def _steps(self, local: GlooCommunicator) -> tuple[Step, Step]:
        """Return what brings the slots of this host to its first rank, and the answer from there to all."""
        slots, answer, first = list(self.slots), self.answer, local.rank == 0
        ways, board = local.ways, local.board
        if board is None or not isinstance(ways, OneHost) or answer.size > board.area_nbytes:
            gather_all, spread_all = Call("all_gather", self.slot, outs=slots), Call("broadcast", answer, root=0)
            return partial(_run, local, gather_all), partial(_run, local, spread_all)
        others = {rank: slots[rank] for rank in range(1, local.size)} if first else {}
        self.gathering = _Step("gather records", board, RECORD_NBYTES, self.slot, others)
        head = RECORD_NBYTES * self.size
        self.spreading = _Step("spread records", board, head, answer if first else None, {} if first else {0: answer})
        gather, spread = AtBoard(ways, self.gathering), AtBoard(ways, self.spreading)
        return partial(_meet, local, gather), partial(_meet, local, spread)


class Relayed:
    """One kind of call, whose data goes along if it has any.

    Attributes:
        fingerprint: What it is about.
        mine: This rank's data, as views of the relay's memory are all of these.
        of_ranks: What this host's is made of: the data of its ranks, of a broadcast that of the root if it is here.
        here: This host's.
        of_hosts: What the result is made of.
        result: The result.
        nbytes: How long it is.
        plan: How the first ranks swap what their hosts have written.
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
        self.nbytes = self.result.nbytes
        home = None if self._op is not None or call.array is None else _home(relay, call)
        along = [self.nbytes if home in (None, host) else 0 for host in range(len(relay.hosts))]
        self.plan = relay.plan(along)

    def _view(self, relay: Relay, call: Call) -> None:
        array, op = call.array, call.reduce_op
        dtype = array.dtype if op is None else accumulation_dtype(op.name, array.dtype)

        def view(memory: Array) -> Array:
            return memory[: array.size * dtype.itemsize].view(dtype).reshape(array.shape)

        head = relay.head
        self._plain = op is not None and op.base is op and dtype == array.dtype
        self.mine, self.result = view(relay.slot[RECORD_NBYTES:]), view(relay.answer[-relay.along_nbytes :])
        self.here = view(relay.rows[relay.here][head:])
        self.of_ranks = [view(slot[RECORD_NBYTES:]) for slot in relay.slots]
        self.of_hosts = [view(row[head:]) for row in relay.rows]
        if op is None:  # a broadcast: all comes from the root
            home = _home(relay, call)
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


def _home(relay: Relay, call: Call) -> int:
    """Return the host of the root."""
    return next(index for index, host in enumerate(relay.hosts) if call.root in host)


class _Step(BoardCall):
    """Something that some ranks of a host write for some others.

    Args:
        name: What it is called.
        board: The board.
        head: How many bytes of it go along with any call, in front of the data.
        write: What this rank writes, if anything.
        read: Where to put what ranks have written, by rank.
    """

    def __init__(self, name: str, board: Board, head: int, write: Array | None, read: dict[int, Array]) -> None:
        super().__init__(Fingerprint(name))
        self._head, self._write, self._areas = head, write, board.areas()
        self._now = self._areas[0]
        self._read = list(read.items())

    def offer(self, board: Board, given: Any) -> None:
        self._now = self._areas[board.flip()]
        if self._write is not None:
            count = self._head + given
            self._now[board.rank][:count] = self._write[:count]

    def take(self, board: Board, meet: Meet, deadline: Deadline, given: Any) -> None:
        count = self._head + given
        for rank, target in self._read:
            target[:count] = self._now[rank][:count]


def _run(local: GlooCommunicator, call: Call, nbytes: int, deadline: Deadline) -> None:
    local.run(call, deadline.remaining())


def _meet(local: GlooCommunicator, step: AtBoard, nbytes: int, deadline: Deadline) -> None:
    if local.failure is not None:
        raise local.failure.with_traceback(None)
    try:
        step.run(nbytes, next(local._sequence), deadline)
    except DistTimeoutError as error:
        raise whom_the_first_awaits(local, error) from None


def whom_the_first_awaits(local: GlooCommunicator, error: DistTimeoutError) -> DistTimeoutError:
    """Return the error of a step, unless this host's first rank alone is late and says in a moment for whom it waits.

    Raises:
        DistError: What it says.
    """
    deadline = Deadline(_HEARD_S)
    while local.rank != 0 and error.waited_for == local.context.global_ranks[:1] and not deadline.expired():
        local.look()
        time.sleep(0.005)
    return error
