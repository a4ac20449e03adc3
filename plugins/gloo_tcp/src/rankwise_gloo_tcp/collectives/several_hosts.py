"""Groups whose ranks are on several hosts, more than one on some: shared memory inside, the network between.

Each host has a group of its own. What the ranks are about to do goes from all ranks of a host to its first, from there
to the first of each other host, and back; small data goes with it. The ranks of a host
divide large reductions among themselves; each talks to its counterparts on other hosts, so all use the network
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rankwise.backends import (
    COLLECTIVE_TAG,
    Algorithm,
    Array,
    Call,
    Deadline,
    Prepared,
    ReduceOp,
    counts,
    mismatch,
    same_call,
)
from rankwise.backends import compiled_parts as native
from rankwise.backends import derived_collectives as derived
from rankwise.errors import DistError
from rankwise_gloo_tcp.collectives import streams
from rankwise_gloo_tcp.collectives.between_hosts import reducing
from rankwise_gloo_tcp.collectives.copying import pieces
from rankwise_gloo_tcp.collectives.opening import FEW_RANKS, RECORD_NBYTES
from rankwise_gloo_tcp.collectives.relay import RELAYED, Relay, Relayed, travelling
from rankwise_gloo_tcp.collectives.strategy import Strategy
from rankwise_gloo_tcp.collectives.subset import Subset
from rankwise_gloo_tcp.collectives.tables import MIXED

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

__all__ = ["SeveralHosts", "several_hosts"]

#: How much of an array is under way at a time; a rank's scratch memory is a few times this.
_PIECE_NBYTES = 4 << 20
#: How much of what goes to one other host only: while it is on its way the ranks of a host pass on what came before.
_AT_ONCE_NBYTES = 512 << 10


def several_hosts(comm: GlooCommunicator, hosts: list[list[int]], local: GlooCommunicator) -> SeveralHosts:
    """Return the strategy of a group on several hosts, compiled where that is and the hosts are few."""
    if native.module() is None or not comm.engine.plain:
        return SeveralHosts(comm, hosts, local)
    from rankwise_gloo_tcp.collectives import compiled_relay

    kind = compiled_relay.CompiledSeveralHosts if compiled_relay.is_possible(hosts, local) else SeveralHosts
    return kind(comm, hosts, local)


class SeveralHosts(Strategy):
    """The strategy of a group on several hosts.

    Args:
        comm: The group.
        hosts: The ranks of each host.
        local: The group of this host, which is closed with this strategy.
    """

    def __init__(self, comm: GlooCommunicator, hosts: list[list[int]], local: GlooCommunicator) -> None:
        super().__init__(comm)
        self._hosts = hosts
        self.local: GlooCommunicator = local
        self._here = next(index for index, host in enumerate(hosts) if comm.rank in host)
        self._place = hosts[self._here].index(comm.rank)
        self._at_once_nbytes = _AT_ONCE_NBYTES * min(len(hosts) - 1, FEW_RANKS)
        self._even = len({len(host) for host in hosts}) == 1
        local.on_failure = comm.fail
        local.engine.progress_lock.in_background = comm._order.serves_here
        first = [host[0] for host in hosts]
        self._relay = Relay(comm, hosts, local, Subset(comm.engine, first, comm.context) if self._place == 0 else None)
        across = [host[self._place] for host in hosts] if self._even else first
        #: The ranks with whom this one divides what comes from other hosts.
        self.across = Subset(comm.engine, across, comm.context) if self.rank in across else None

    def close(self) -> None:
        """Tell the peers on this host that this rank leaves."""
        self.local.on_failure = None
        self.local.shutdown()

    def give_up(self, error: DistError) -> None:
        """End what is pending on this host."""
        self.local.give_up(error)

    def _locally(self, call: Call, deadline: Deadline) -> None:
        """Carry a collective out among the ranks of this host."""
        self.local.run(call, deadline.remaining())

    def _choose(self, call: Call) -> str:
        """Return the algorithm of a call, by what all ranks know of it."""
        op, nbytes, parts = call.op, travelling(call), call.ins or call.outs or ()
        name = self.comm.selection.choose_mixed(op, nbytes, self.size)
        if name == "along" and (nbytes > self._relay.along_nbytes or any(part.size != parts[0].size for part in parts)):
            return MIXED[op][-1].name
        return name

    # ------------------------------------------------------------------ collectives

    def prepare(self, call: Call) -> Prepared | None:
        """Return what does small calls of a kind, whose data goes with the comparison."""
        goes_along = call.op == "barrier" or (call.op in RELAYED and self._choose(call) == "along")
        return Relayed(self._relay, call) if goes_along else None

    def _choose_broadcast(self, call: Call) -> Algorithm | None:
        return None if self._choose(call) == "derived" else partial(self._broadcast, call.array, call.root)

    def _choose_reduce(self, call: Call) -> Algorithm | None:
        derives = self._choose(call) == "derived"
        return None if derives else partial(self._reduce, call.array, reducing(call), call.root)

    def _choose_all_reduce(self, call: Call) -> Algorithm | None:
        return None if self._choose(call) == "derived" else partial(self._all_reduce, call.array, reducing(call))

    def _choose_all_gather(self, call: Call) -> Algorithm | None:
        if not self._even or self._choose(call) == "derived":
            return None
        return partial(self._all_gather, call.outs or (), call.array)

    def _choose_reduce_scatter(self, call: Call) -> Algorithm | None:
        op = reducing(call)
        if not (self._even and op.is_plain_on(call.array.dtype)) or self._choose(call) == "derived":
            return None
        return partial(self._reduce_scatter, call.array, call.ins or (), op)

    OWN: ClassVar = {
        "broadcast": _choose_broadcast,
        "reduce": _choose_reduce,
        "all_reduce": _choose_all_reduce,
        "all_gather": _choose_all_gather,
        "reduce_scatter": _choose_reduce_scatter,
    }

    # ------------------------------------------------------------------ comparing the calls

    def compare_and_run(self, call: Call, algorithm: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls of all ranks, host by host, and run the collective."""
        fingerprint = call.fingerprint
        records = self._compare(fingerprint.record(self.rank, sequence), deadline)
        rows = [records[at : at + RECORD_NBYTES] for at in range(0, len(records), RECORD_NBYTES)]
        if not same_call(rows):
            raise mismatch(self.comm, fingerprint, sequence, deadline)
        algorithm(deadline, counts(rows))

    def _compare(self, record: bytes, deadline: Deadline) -> bytes:
        """Give this rank's record to all others, and return all records."""
        return self._relay.compare(record, None, deadline)

    # ------------------------------------------------------------------ large data

    def _all_reduce(self, array: Array, op: ReduceOp, deadline: Deadline, counts: object) -> None:
        plain = op.is_plain_on(array.dtype)
        for piece in pieces(array.reshape(-1), _PIECE_NBYTES):
            total = piece if plain else op.accumulator(piece)
            self._reduce_piece(total, op.base, deadline)
            if not plain or op.name == "AVG":
                op.finish(total, piece, self.size)

    def _reduce_piece(self, total: Array, op: ReduceOp, deadline: Deadline) -> None:
        if not self._even:
            self._locally(Call("reduce", total, op, 0), deadline)
            if self.across is not None:
                self._reduce_across(self.across, total, op, deadline)
            self._locally(Call("broadcast", total, root=0), deadline)
            return
        shares = streams.cut(total, self.local.size)
        mine = np.empty_like(shares[self._place])
        self._locally(Call("reduce_scatter", mine, op, ins=shares), deadline)
        if self.across is not None:
            self._reduce_across(self.across, mine, op, deadline)
        self._locally(Call("all_gather", mine, outs=shares), deadline)

    def _reduce_across(self, across: Subset, total: Array, op: ReduceOp, deadline: Deadline) -> None:
        """Reduce what this rank and its counterparts on other hosts have."""
        if across.size == 2:
            streams.all_reduce(across, total, op, deadline)
            return
        mine, others = _divided(across, total)
        self._exchange(across, others, dict.fromkeys(others, mine), op, deadline)
        self._exchange(across, dict.fromkeys(others, mine), others, None, deadline)

    def _trade(
        self, between: Subset, sent: Array | None, taken: Array | None, op: ReduceOp | None, deadline: Deadline
    ) -> None:
        """Send something to the other of two ranks, and take something from there."""
        streams.trade(between, sent, taken, op, deadline)

    def _exchange(
        self, between: Subset, sent: streams.Lanes, taken: streams.Lanes, op: ReduceOp | None, deadline: Deadline
    ) -> None:
        """Send something to some of the others, and take something from there."""
        streams.Exchange(between, sent, taken, op).finish(deadline)

    def _speakers(self, root: int) -> tuple[int, int, list[int]]:
        """Return the host of a root, and who speaks for this one, by place, and for each."""
        home = next(index for index, host in enumerate(self._hosts) if root in host)
        speaker = self._hosts[home].index(root) if self._here == home else 0
        return home, speaker, [root if host is self._hosts[home] else host[0] for host in self._hosts]

    def _reduce(self, array: Array, op: ReduceOp, root: int, deadline: Deadline, counts: object) -> None:
        home, speaker, speakers = self._speakers(root)
        between = Subset(self.comm.engine, speakers, self.comm.context) if self._place == speaker else None
        plain = op.is_plain_on(array.dtype)
        for piece in pieces(array.reshape(-1), self._at_once_nbytes):
            # Only the root's array may change, and the total is put into the speaker's.
            total = piece if plain and (between is None or self.rank == root) else op.accumulator(piece)
            self._locally(Call("reduce", total, op.base, speaker), deadline)
            if between is not None:
                self._reduce_to(between, home, total, op.base, deadline)
            if self.rank == root and (not plain or op.name == "AVG"):
                op.finish(total, piece, self.size)

    def _reduce_to(self, between: Subset, home: int, total: Array, op: ReduceOp, deadline: Deadline) -> None:
        """Reduce what the hosts have into what one of them has."""
        receipt = total[:1].copy()
        if between.size > FEW_RANKS:
            derived.reduce(between, total, op, home, deadline)
        elif between.size > 2:
            mine, others = _divided(between, total)
            self._exchange(between, others, dict.fromkeys(others, mine), op, deadline)
            back = (others, {}) if between.rank == home else ({}, {home: mine})
            self._exchange(between, back[1], back[0], None, deadline)
        elif between.rank == home:
            self._trade(between, receipt, total, op, deadline)
        else:
            self._trade(between, total, receipt, None, deadline)

    def _broadcast(self, array: Array, root: int, deadline: Deadline, counts: object) -> None:
        home, speaker, speakers = self._speakers(root)
        between = Subset(self.comm.engine, speakers, self.comm.context) if self._place == speaker else None
        if len(self._hosts) > FEW_RANKS:
            self._broadcast_to_all(array, home, speaker, between, deadline)
            return
        for piece in pieces(_flat(array), self._at_once_nbytes):
            if between is not None:
                self._pass_around(between, piece, home, deadline)
            self._locally(Call("broadcast", piece, root=speaker), deadline)

    def _pass_around(self, between: Subset, piece: Array, home: int, deadline: Deadline) -> None:
        """Send each other host a share of what one of them has, for an element back; they tell each other of theirs."""
        others = [host for host in range(between.size) if host != home]
        shares = dict(zip(others, streams.cut(piece, len(others)), strict=True))
        receipts = {host: np.zeros(1, np.uint8) for host in others}
        at_home = between.rank == home
        sent, taken = (shares, receipts) if at_home else (receipts, shares)
        if between.size == 2:
            self._trade(between, sent[others[0]], taken[others[0]], None, deadline)
            return
        if at_home:
            self._exchange(between, shares, receipts, None, deadline)
            return
        mine = shares.pop(between.rank)
        self._exchange(between, {home: receipts[between.rank]}, {home: mine}, None, deadline)
        self._exchange(between, dict.fromkeys(shares, mine), shares, None, deadline)

    def _broadcast_to_all(
        self, array: Array, home: int, speaker: int, between: Subset | None, deadline: Deadline
    ) -> None:
        """Send all of it to the other hosts, which pass on each piece when it is there."""
        cut = list(pieces(array.reshape(-1), _PIECE_NBYTES))
        sends, coming = [], []
        if between is not None and self._here == home:
            sends = [
                between.send_bytes(memoryview(piece.view(np.uint8)), peer, COLLECTIVE_TAG, True)
                for piece in cut
                for peer in range(between.size)
                if peer != home
            ]
        elif between is not None:
            coming = [
                between.receive_bytes(memoryview(piece.view(np.uint8)), home, COLLECTIVE_TAG, True) for piece in cut
            ]
        for index, piece in enumerate(cut):
            streams.wait_for(self.comm.engine, coming[index : index + 1], deadline)
            self._locally(Call("broadcast", piece, root=speaker), deadline)
        streams.wait_for(self.comm.engine, sends, deadline)

    def _all_gather(self, parts: Sequence[Array], array: Array, deadline: Deadline, counts: object) -> None:
        assert self.across is not None  # all ranks have counterparts where hosts are even
        counterparts = [parts[host[self._place]] for host in self._hosts]
        if self.across.size > FEW_RANKS:
            derived.all_gather(self.across, counterparts, array, deadline)
        else:
            self._gather_across(self.across, counterparts, array, deadline)
        for host, part in zip(self._hosts, counterparts, strict=True):
            self._locally(Call("all_gather", part, outs=[parts[rank] for rank in host]), deadline)

    def _gather_across(self, across: Subset, parts: Sequence[Array], array: Array, deadline: Deadline) -> None:
        """Copy what this rank and its counterparts on other hosts have into the parts of all."""
        parts[across.rank][...] = array
        others = {host: _flat(part) for host, part in enumerate(parts)}
        mine = others.pop(across.rank)
        if across.size == 2:
            self._trade(across, mine, others[1 - across.rank], None, deadline)
        else:
            self._exchange(across, dict.fromkeys(others, mine), others, None, deadline)

    def _reduce_scatter(
        self, array: Array, parts: Sequence[Array], op: ReduceOp, deadline: Deadline, counts: object
    ) -> None:
        assert self.across is not None
        adding = op.base
        flat, flats = array.reshape(-1), [part.reshape(-1) for part in parts]
        step = max(1, _PIECE_NBYTES // (len(self._hosts) * array.itemsize))
        for begin in range(0, max(part.size for part in flats), step):
            cuts = [part[begin : begin + step] for part in flats]
            sums = []
            for host in self._hosts:
                sums.append(np.empty_like(cuts[host[self._place]]))
                self._locally(Call("reduce_scatter", sums[-1], adding, ins=[cuts[rank] for rank in host]), deadline)
            mine = sums[self._here]
            if self.across.size == 2:
                self._trade(self.across, sums[1 - self._here], mine, adding, deadline)
            else:
                others = {host: total for host, total in enumerate(sums) if host != self._here}
                self._exchange(self.across, others, dict.fromkeys(others, mine), adding, deadline)
            target = flat[begin : begin + step]
            target[...] = mine
            if op.name == "AVG":
                op.finish(target, target, self.size)


def _divided(between: Subset, total: Array) -> tuple[Array, dict[int, Array]]:
    """Return the share of an array that this rank reduces, and those of the others."""
    shares = dict(enumerate(streams.cut(total, between.size)))
    return shares.pop(between.rank), shares


def _flat(array: Array) -> Array:
    """Return the bytes of an array."""
    flat: Array = array.reshape(-1).view(np.uint8)
    return flat
