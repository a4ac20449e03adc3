"""How the ranks of several hosts compare their calls, with small data along.

Each rank writes its record, and its data behind it, for the first rank of its host. The first ranks exchange what their
hosts have written, and write all records and the result for the others. Memory and messages are prepared once for the
group, and the views of a kind of call once for that; so a call that comes again only writes, waits and reads.

In a gather, a scatter and an all_to_all a rank knows the sizes of its own parts only. One whose parts are alike, and
small, sends its data along; one whose parts are not says so in its record. The data of a call counts if that of all
ranks has come, of one length. Otherwise it moves after the comparison, and from then on without a try.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rankwise.backends import (
    FINGERPRINT_TAG,
    Array,
    Call,
    Deadline,
    Fingerprint,
    ReduceOp,
    accumulation_dtype,
    anew,
    as_bytes,
    counts,
    mismatch,
    same_call,
)
from rankwise.backends import derived_collectives as derived
from rankwise.errors import DistTimeoutError
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.board.call import BoardCall, Meet
from rankwise_gloo_tcp.collectives.along import moved
from rankwise_gloo_tcp.collectives.one_host import AtBoard, OneHost
from rankwise_gloo_tcp.collectives.opening import FEW_RANKS, RECORD_NBYTES, Opening, Swap, inline_nbytes
from rankwise_gloo_tcp.collectives.streams import Subset
from rankwise_gloo_tcp.collectives.tables import along_nbytes

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

#: Those of them in which a rank knows the sizes of its own parts only.
EACH_ITS_OWN = ("gather", "scatter", "all_to_all")
#: The collectives whose data may go along.
RELAYED = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", *EACH_ITS_OWN)

#: How long after a time-out the first rank of a host may still say for whom it waits.
_HEARD_S = 0.2
#: How much data goes with every call where the ranks of a host have no board.
_ANYHOW_NBYTES = 2 << 10
#: Behind the number and the digest of a call stands how much a rank contributes, with this if it sends nothing along.
_COUNT = slice(16, 24)
_APART = 1 << 63

#: Where something goes, and what it is the sum of.
_Sum: TypeAlias = tuple[Array, Sequence[Array]]
#: Carries out what all ranks of this host do together, with so many bytes of data along.
Step = Callable[[int, Deadline], None]
#: Moves the data of a call, once the calls have been compared; it is told how many elements each rank contributes.
Follow = Callable[[Call, Deadline, Sequence[int]], None]


def told(fingerprint: Fingerprint, rank: int, sequence: int, along: bool) -> bytes:
    """Return a rank's record of a call, which says where that matters whether its data is sent along."""
    record = fingerprint.record(rank, sequence)
    if along or fingerprint.op not in EACH_ITS_OWN:
        return record
    return record[: _COUNT.start] + (fingerprint.count | _APART).to_bytes(8, "little") + record[_COUNT.stop :]


def rows_of(records: bytes) -> list[bytes]:
    """Return the record of each rank."""
    return [records[at : at + RECORD_NBYTES] for at in range(0, len(records), RECORD_NBYTES)]


def contributed(records: Sequence[bytes]) -> list[int]:
    """Return how many elements each rank contributes."""
    return [count & ~_APART for count in counts(records)]


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
        self.along_nbytes = along = along_nbytes(list(map(len, hosts)))
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
        given, nbytes = (0, 0) if relayed is None else (relayed.given_nbytes, relayed.nbytes)
        self._record[:] = record
        self._gather(given, deadline)
        if self._firsts is not None:
            self.slots[0, : RECORD_NBYTES + given] = self.slot[: RECORD_NBYTES + given]
            self._ask_others(self._firsts, relayed, deadline)
        self._spread(nbytes, deadline)
        return self._records.tobytes()

    def _ask_others(self, firsts: Subset, relayed: Relayed | None, deadline: Deadline) -> None:
        """Exchange what whole hosts have written; of hosts that differ the data makes no sense."""
        mine = self.rows[self.here]
        count = RECORD_NBYTES * len(self.slots)
        mine[:count].reshape(self.slots.shape[0], RECORD_NBYTES)[:] = self.slots[:, :RECORD_NBYTES]
        if relayed is not None:
            relayed.combine(relayed.of_ranks)
        plan = self._bare if relayed is None else relayed.plan
        if plan is None:
            derived.all_gather(firsts, list(self.rows), mine, deadline, tag=FINGERPRINT_TAG)
        else:
            self._swap(plan, mine, deadline)
        for host, row in zip(self.hosts, self.rows, strict=True):
            self._records[host] = row[: RECORD_NBYTES * len(host)].reshape(len(host), RECORD_NBYTES)
        if relayed is not None:
            relayed.combine(relayed.of_hosts)

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
        strategy, board = local.strategy, local.board
        head = RECORD_NBYTES * self.size
        if board is None or not isinstance(strategy, OneHost) or answer.size > board.area_nbytes:
            return partial(_gather, local, self.slot, slots), partial(_spread, local, answer, head)
        others = {rank: slots[rank] for rank in range(1, local.size)} if first else {}
        self.gathering = _Step("gather records", board, RECORD_NBYTES, self.slot, others)
        self.spreading = _Step("spread records", board, head, answer if first else None, {} if first else {0: answer})
        gather, spread = AtBoard(strategy, self.gathering), AtBoard(strategy, self.spreading)
        return partial(_meet, local, gather), partial(_meet, local, spread)


class Relayed:
    """One kind of call, whose data goes along if it has any. All views are of the relay's memory.

    Args:
        relay: The comparison.
        call: A call of this kind.
        follow: What moves the data if not all has come along.

    Attributes:
        fingerprint: What it is about.
        mine: Where this rank's data goes, array by array.
        of_ranks: What this host's data is made of: where it goes, and from where on this host it comes.
        of_hosts: The same of the result.
        result: What this rank takes of the result, array by array.
        nbytes: How long the result is.
        given_nbytes: How much each rank that gives anything gives.
        plan: How the first ranks swap what their hosts have written.
    """

    def __init__(self, relay: Relay, call: Call, follow: Follow) -> None:
        self.fingerprint, self._op, self._follow = call.fingerprint, call.reduce_op, follow
        self._relay, self._plain, self._is_apart = relay, False, False
        #: What this rank says of the call, behind its number.
        self._about = told(self.fingerprint, relay.rank, 0, along=True)[8:]
        self.mine: list[Array] = []
        self.result: list[Array] = []
        self.of_ranks: list[_Sum] = []
        self.of_hosts: list[_Sum] = []
        self.nbytes = self.given_nbytes = 0
        along = [0] * len(relay.hosts)
        if call.array is not None:
            self._view(relay, call, along)
        self.plan = relay.plan(along)

    def _view(self, relay: Relay, call: Call, along: list[int]) -> None:
        """Make the views, and note how much goes along from each host."""
        op, rank, dtype = call.reduce_op, relay.rank, _travels_as(call)
        self._plain = op is not None and op.base is op and dtype == call.array.dtype
        each, gathers = call.array.size, call.op in ("all_gather", "gather", "all_to_all")
        scatters = call.op in ("reduce_scatter", "scatter", "all_to_all")
        count = each * relay.size if scatters else each
        self.given_nbytes = count * dtype.itemsize
        self.nbytes = self.given_nbytes * (relay.size if gathers else 1)
        slot, answer = relay.slot[RECORD_NBYTES:], relay.answer[-relay.along_nbytes :]
        slots = [_cut(each_slot[RECORD_NBYTES:], count, dtype)[0] for each_slot in relay.slots]
        rows = [
            _cut(row[relay.head :], count, dtype, len(host) if gathers else 1)
            for row, host in zip(relay.rows, relay.hosts, strict=True)
        ]
        self.mine = _cut(slot, each, dtype, relay.size if scatters else 1)
        results = _cut(answer, each if scatters else count, dtype, relay.size ** (gathers + scatters))
        if scatters:  # each takes its part of what comes from a rank, or of the sum
            results = results[rank :: relay.size]
        if gathers:
            self.result = results if call.root in (-1, rank) else []
            wholes = _cut(answer, count, dtype, relay.size)
            self.of_ranks = [(part, [theirs]) for part, theirs in zip(rows[relay.here], slots, strict=True)]
            for host, parts in zip(relay.hosts, rows, strict=True):
                self.of_hosts += [(wholes[peer], [part]) for peer, part in zip(host, parts, strict=True)]
            along[:] = [self.given_nbytes * len(host) for host in relay.hosts]
            return
        here, whole = rows[relay.here][0], _cut(answer, count, dtype)[0]
        home = _home(relay, call.root)
        if op is not None:
            self.result = results if call.root in (-1, rank) else []
            self.of_ranks, self.of_hosts = [(here, slots)], [(whole, [row[0] for row in rows])]
            along[:] = [self.nbytes] * len(relay.hosts)
            return
        is_root = rank == call.root
        self.mine, self.result = self.mine if is_root else [], results if scatters or not is_root else []
        self.of_hosts = [(whole, rows[home])]
        if home == relay.here:
            self.of_ranks = [(here, [slots[relay.hosts[home].index(call.root)]])]
        along[home] = self.nbytes

    def bind(self, call: Call) -> Any:
        """Return what `run` takes; of a reduction of one array, a broadcast and a barrier what `Prepared` says."""
        if call.op == "reduce_scatter":
            return call.ins, [call.array], call.reduce_op
        if call.reduce_op is not None:
            return call.array, call.reduce_op
        if call.array is None:
            return None
        sent, received = moved(call, self._relay.rank)
        return (sent, received, call) if call.op in EACH_ITS_OWN else (sent, received)

    def run(self, given: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls, and carry this one out."""
        record = sequence.to_bytes(8, "little") + self._about
        sent, received, op = self._taken_apart(given)
        if not self._is_apart:
            self._give(sent, op)
        records = self._relay.compare(record, None if self._is_apart else self, deadline)
        if records != record * self._relay.size:
            rows = rows_of(records)
            if not same_call(rows):
                raise mismatch(self._relay.comm, self.fingerprint, sequence, deadline)
            if self._is_apart or any(row[_COUNT] != record[_COUNT] for row in rows):
                self._keep_apart()
                self._follow(given[2], deadline, contributed(rows))
                return
        self._take(received, op)

    def _keep_apart(self) -> None:
        """Send no data along from now on, as others do not either."""
        self._is_apart = True
        self._about = told(self.fingerprint, self._relay.rank, 0, along=False)[8:]

    def _give(self, sent: Sequence[Array], op: ReduceOp | None) -> None:
        for view, array in zip(self.mine, sent, strict=True):
            view[...] = (array if op is None or self._plain else op.accumulator(array)).reshape(-1)

    def _take(self, received: Sequence[Array], op: ReduceOp | None) -> None:
        for view, array in zip(self.result, received, strict=True):
            if op is None or self._plain:
                array[...] = view.reshape(array.shape)
            else:
                op.finish(view, array, self._relay.size)

    def _taken_apart(self, given: Any) -> tuple[Sequence[Array], Sequence[Array], ReduceOp | None]:
        """Return what this rank gives, what it takes, and the reduce op of this very call, which may have a factor."""
        if given is None:
            return (), (), None
        if self._op is None:
            return given[0], given[1], None
        if len(given) == 3:
            sent, received, op = given
            return sent, received, op
        array, op = given
        return [array], [array] if self.result else [], op

    def combine(self, sums: Sequence[_Sum]) -> None:
        """Write what the data of several ranks, or of several hosts, comes to."""
        for total, views in sums:
            if self._op is None or len(views) == 1:
                total[...] = views[0]
                continue
            merge = self._op.merge  # AVG and PREMUL_SUM add
            merge(views[0], views[1], total)
            for view in views[2:]:
                merge(total, view, total)


def travelling(call: Call) -> int:
    """Return how many bytes an array, or all parts together, have in the dtype in which they travel."""
    parts = call.ins or call.outs
    count = call.array.size if parts is None else sum(part.size for part in parts)
    return int(count * _travels_as(call).itemsize)


def _travels_as(call: Call) -> Any:
    op = call.reduce_op
    return call.array.dtype if op is None else accumulation_dtype(op.name, call.array.dtype)


def _cut(memory: Array, count: int, dtype: Any, parts: int = 1) -> list[Array]:
    """Return so many arrays of `count` elements that lie one behind the other in memory."""
    nbytes = count * dtype.itemsize
    return [memory[nbytes * i : nbytes * (i + 1)].view(dtype) for i in range(parts)]


def _home(relay: Relay, root: int) -> int:
    """Return the host of a rank; -1 for none."""
    return next((index for index, host in enumerate(relay.hosts) if root in host), -1)


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


def _gather(local: GlooCommunicator, slot: Array, slots: Sequence[Array], nbytes: int, deadline: Deadline) -> None:
    """Bring slots together by messages: what goes with any call, then the rest if all make the same."""
    fixed, end = RECORD_NBYTES + _ANYHOW_NBYTES, RECORD_NBYTES + nbytes
    local.run(Call("all_gather", slot[:fixed], outs=[each[:fixed] for each in slots]), deadline.remaining())
    if end > fixed and _alike(np.stack([each[:RECORD_NBYTES] for each in slots])):
        local.run(Call("all_gather", slot[fixed:end], outs=[each[fixed:end] for each in slots]), deadline.remaining())


def _spread(local: GlooCommunicator, answer: Array, head: int, nbytes: int, deadline: Deadline) -> None:
    """Bring the answer to all likewise."""
    fixed, end = head + _ANYHOW_NBYTES, head + nbytes
    local.run(Call("broadcast", answer[:fixed], root=0), deadline.remaining())
    if end > fixed and _alike(answer[:head].reshape(-1, RECORD_NBYTES)):
        local.run(Call("broadcast", answer[fixed:end], root=0), deadline.remaining())


def _alike(records: Array) -> bool:
    """Tell whether ranks make the same call with as much data along, as far as their own words tell."""
    return bool((records[:, : _COUNT.stop] == records[0, : _COUNT.stop]).all())


def _meet(local: GlooCommunicator, step: AtBoard, nbytes: int, deadline: Deadline) -> None:
    if local.failure is not None:
        raise anew(local.failure)
    try:
        step.run(nbytes, next(local.numbers), deadline)
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
