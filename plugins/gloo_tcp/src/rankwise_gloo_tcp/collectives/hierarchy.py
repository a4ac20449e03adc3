"""What the ranks of several hosts do with large data: through shared memory on a host, by messages between hosts.

The algorithms say what is done, one thing after the other; by what means is the caller's to say: those that do it, or
those that note it, to be done again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rankwise.backends import COLLECTIVE_TAG, Array, Call, Deadline, ReduceOp
from rankwise.backends import derived_collectives as derived
from rankwise_gloo_tcp.collectives import streams
from rankwise_gloo_tcp.collectives.copying import cut, pieces
from rankwise_gloo_tcp.collectives.means import Means
from rankwise_gloo_tcp.collectives.opening import FEW_RANKS
from rankwise_gloo_tcp.collectives.streams import Lanes, Subset

if TYPE_CHECKING:
    from rankwise_gloo_tcp.communicator import GlooCommunicator

#: How much of an array is under way at a time; a rank's scratch memory is a few times this.
_PIECE_NBYTES = 4 << 20
#: How much of what goes to one other host only: while it is on its way the ranks of a host pass on what came before.
_AT_ONCE_NBYTES = 512 << 10


class Hosts:
    """Where the ranks of a group are, as one of them sees it.

    Args:
        comm: The group.
        ranks: The ranks of each host.

    Attributes:
        here: This host.
        place: Which of its ranks this one is.
        even: Whether all hosts have as many ranks.
        across: The ranks with whom this one divides what comes from other hosts, if it does.
    """

    def __init__(self, comm: GlooCommunicator, ranks: Sequence[Sequence[int]]) -> None:
        self._comm, self.ranks, self.rank, self.size = comm, ranks, comm.rank, comm.size
        self.here = next(index for index, host in enumerate(ranks) if comm.rank in host)
        self.place = ranks[self.here].index(comm.rank)
        self.even = len({len(host) for host in ranks}) == 1
        across = [host[self.place] for host in ranks] if self.even else [host[0] for host in ranks]
        self.across = self.among(across) if comm.rank in across else None
        self.at_once_nbytes = _AT_ONCE_NBYTES * min(len(ranks) - 1, FEW_RANKS)

    @cached_property
    def away(self) -> Subset:
        """This rank, and those of all other hosts."""
        ranks = [rank for host in self.ranks for rank in host if rank == self.rank or self.rank not in host]
        return self.among(ranks, 1 + self.size - min(map(len, self.ranks)))

    @cached_property
    def most_partners(self) -> int:
        """How many ranks trade where each rank of a host answers for some of every other host, at the most."""
        places = [(here, place) for here, host in enumerate(self.ranks) for place in range(len(host))]
        return len(self.ranks) if self.even else max(len(_partners(self.ranks, *place)) for place in places)

    @cached_property
    def partners(self) -> Subset:
        """This rank, and those that it trades with so."""
        return self.among(_partners(self.ranks, self.here, self.place), self.most_partners)

    def partner(self, host: int) -> int:
        """Return the rank of a host that answers there for this one."""
        return self.ranks[host][self.place % len(self.ranks[host])]

    def rows(self, host: int) -> list[Sequence[int]]:
        """Return the ranks of a host in rows, for each of which a rank of this host answers."""
        return _rows(self.ranks[host], len(self.ranks[self.here]))

    def subset(self, ranks: Sequence[int]) -> Subset:
        """Return some ranks of the group, of which this is one."""
        return Subset(self._comm.engine, ranks, self._comm.context)

    def among(self, ranks: Sequence[int], width: int = 0) -> Subset:
        """Return what carries long data among some ranks, of which this is one, cut for so many, or for them alone."""
        spread = self._comm.spread
        found = self.subset(ranks) if spread is None else spread(ranks)
        if width:
            found.cut_for(width)
        return found

    def speakers(self, root: int) -> tuple[int, int, Subset | None]:
        """Return the host of a root, which rank speaks for this one, by its place, and on that those of all hosts."""
        home = next(index for index, host in enumerate(self.ranks) if root in host)
        speaker = self.ranks[home].index(root) if self.here == home else 0
        between = [root if host is self.ranks[home] else host[0] for host in self.ranks]
        return home, speaker, self.among(between) if self.place == speaker else None


def _rows(host: Sequence[int], length: int) -> list[Sequence[int]]:
    return [host[begin : begin + length] for begin in range(0, len(host), length)]


def _partners(hosts: Sequence[Sequence[int]], here: int, place: int) -> list[int]:
    """Return a rank and those that it trades with, host by host: who answers for it, and for whom it answers."""
    found = []
    for index, host in enumerate(hosts):
        if index == here:
            found.append(host[place])
            continue
        mine = {row[place] for row in _rows(host, len(hosts[here])) if place < len(row)}
        found += [rank for rank in host if rank in mine or rank == host[place % len(host)]]
    return found


class Long(NamedTuple):
    """An algorithm of this module, with what it works on.

    Attributes:
        hosts: Where the ranks are.
        means: Returns what moves the data, until a deadline.
        algorithm: The function.
        args: What it takes besides.
    """

    hosts: Hosts
    means: Callable[[Deadline], Means]
    algorithm: Callable[..., None]
    args: tuple[Any, ...]

    def __call__(self, deadline: Deadline, counts: object) -> None:
        self.algorithm(self.hosts, self.means(deadline), *self.args)


# ---------------------------------------------------------------------- reductions


def all_reduce(hosts: Hosts, by: Means, array: Array, op: ReduceOp) -> None:
    """Reduce an array for all: each rank of a host a share of it, with its counterparts on other hosts."""
    plain = op.is_plain_on(array.dtype)
    for piece in pieces(array.reshape(-1), _PIECE_NBYTES):
        total = piece if plain else op.accumulator(piece)
        _reduce_piece(hosts, by, total, op.base)
        if not plain or op.name == "AVG":
            by.finish(op, total, piece, hosts.size)


def all_reduce_streamed(hosts: Hosts, by: Means, array: Array, op: ReduceOp) -> None:
    """Reduce an array of ranks that are alone on their hosts as a whole: contributions and results overlap."""
    assert hosts.across is not None  # as hosts are even
    if op.is_plain_on(array.dtype):
        by.reduce(hosts.across, array.reshape(-1), op)
        return
    for piece in pieces(array.reshape(-1), _PIECE_NBYTES):
        total = op.accumulator(piece)
        by.reduce(hosts.across, total, op.base)
        by.finish(op, total, piece, hosts.size)


def _reduce_piece(hosts: Hosts, by: Means, total: Array, op: ReduceOp) -> None:
    if not hosts.even:
        by.on_host(Call("reduce", total, op, 0))
        if hosts.across is not None:
            _reduce_across(hosts.across, by, total, op)
        by.on_host(Call("broadcast", total, root=0))
        return
    assert hosts.across is not None  # where hosts are even all ranks have counterparts
    if len(hosts.ranks[hosts.here]) == 1:
        _reduce_across(hosts.across, by, total, op)
        return
    shares = cut(total, len(hosts.ranks[hosts.here]))
    mine = by.scratch(shares[hosts.place])
    by.on_host(Call("reduce_scatter", mine, op, ins=shares))
    _reduce_across(hosts.across, by, mine, op)
    by.on_host(Call("all_gather", mine, outs=shares))


def _reduce_across(across: Subset, by: Means, total: Array, op: ReduceOp) -> None:
    """Reduce what this rank and its counterparts on other hosts have."""
    if across.size == 2:
        by.reduce(across, total, op)
        return
    mine, others = _divided(across, total)
    by.exchange(across, others, dict.fromkeys(others, mine), op)
    by.exchange(across, dict.fromkeys(others, mine), others)


def reduce(hosts: Hosts, by: Means, array: Array, op: ReduceOp, root: int) -> None:
    """Reduce an array for one rank: on each host for one, who speaks for it."""
    home, speaker, between = hosts.speakers(root)
    plain = op.is_plain_on(array.dtype)
    for piece in pieces(array.reshape(-1), hosts.at_once_nbytes):
        # Only the root's array may change, and the total is put into the speaker's.
        total = piece
        if not plain:
            total = op.accumulator(piece)
        elif between is not None and hosts.rank != root:
            by.copy(total := by.scratch(piece), piece)
        by.on_host(Call("reduce", total, op.base, speaker))
        if between is not None:
            _reduce_to(between, by, home, total, op.base)
        if hosts.rank == root and (not plain or op.name == "AVG"):
            by.finish(op, total, piece, hosts.size)


def _reduce_to(between: Subset, by: Means, home: int, total: Array, op: ReduceOp) -> None:
    """Reduce what the hosts have into what one of them has."""
    at_home = between.rank == home
    if between.size > FEW_RANKS:
        derived.reduce(between, total, op, home, by.deadline)
    elif between.size > 2:
        mine, others = _divided(between, total)
        by.exchange(between, others, dict.fromkeys(others, mine), op)
        by.exchange(between, {} if at_home else {home: mine}, others if at_home else {})
    else:
        # Back comes an element, of no matter what, so that no more is sent than is taken.
        sent, taken = (total[:1], total) if at_home else (total, by.scratch(total[:1]))
        other = 1 - between.rank
        by.exchange(between, {other: sent}, {other: taken}, op if at_home else None)


def reduce_scatter(hosts: Hosts, by: Means, array: Array, parts: Sequence[Array], op: ReduceOp) -> None:
    """Reduce a part for each rank: on each host by the one that answers for that rank, which gets the sums of all."""
    flat, flats = array.reshape(-1), [part.reshape(-1) for part in parts]
    step = max(1, _PIECE_NBYTES // (len(hosts.ranks) * array.itemsize))
    for begin in range(0, max(part.size for part in flats), step):
        sums = _sums_here(hosts, by, [part[begin : begin + step] for part in flats], op.base)
        mine = sums.pop(hosts.rank)
        others = [hosts.partner(host) for host in range(len(hosts.ranks)) if host != hosts.here]
        place = hosts.partners.ranks.index
        sent = {place(rank): total for rank, total in sums.items()}
        by.exchange(hosts.partners, sent, {place(rank): mine for rank in others}, op.base)
        target = flat[begin : begin + step]
        by.copy(target, mine)
        if op.name == "AVG":
            by.finish(op, target, target, hosts.size)


def _sums_here(hosts: Hosts, by: Means, cuts: Sequence[Array], op: ReduceOp) -> dict[int, Array]:
    """Return what this host has for each rank that this one answers for, reduced."""
    sums = {}
    for host in range(len(hosts.ranks)):
        for row in hosts.rows(host):
            mine = cuts[row[hosts.place]] if hosts.place < len(row) else cuts[0][:0]
            if len(hosts.ranks[hosts.here]) > 1 or host == hosts.here:  # what is alone is sent from where it is
                total = by.scratch(mine)
                by.on_host(Call("reduce_scatter", total, op, ins=_filled(hosts, [cuts[rank] for rank in row])))
                mine = total
            if hosts.place < len(row):
                sums[row[hosts.place]] = mine
    return sums


def _filled(hosts: Hosts, row: list[Array]) -> list[Array]:
    """Return what belongs to a row of ranks, and nothing for those of this host that answer for nobody in it."""
    return row + [row[0].reshape(-1)[:0]] * (len(hosts.ranks[hosts.here]) - len(row))


# ---------------------------------------------------------------------- copies


def broadcast(hosts: Hosts, by: Means, array: Array, root: int) -> None:
    """Copy an array to all: piece by piece to one rank of each host, who passes it on."""
    home, speaker, between = hosts.speakers(root)
    if len(hosts.ranks) > FEW_RANKS:
        _broadcast_to_all(hosts, by, array, home, speaker, between)
        return
    for piece in pieces(_flat(array), hosts.at_once_nbytes):
        if between is not None:
            _pass_around(between, by, piece, home)
        by.on_host(Call("broadcast", piece, root=speaker))


def send_segments(hosts: Hosts, by: Means, array: Array, root: int) -> None:
    """Send the array of one of two ranks that are alone on their hosts to the other."""
    assert hosts.across is not None  # as hosts are even
    lanes = {1 - hosts.rank: array.reshape(-1)}
    by.exchange(hosts.across, *((lanes, {}) if hosts.rank == root else ({}, lanes)))


def _pass_around(between: Subset, by: Means, piece: Array, home: int) -> None:
    """Send each other host a share of what one of them has, for an element back; they tell each other of theirs."""
    others = [host for host in range(between.size) if host != home]
    shares = dict(zip(others, cut(piece, len(others)), strict=True))
    if between.rank == home:
        by.exchange(between, shares, {host: by.scratch(piece[:1]) for host in others})
        return
    mine = shares.pop(between.rank)
    by.exchange(between, {home: piece[:1]}, {home: mine})
    if shares:
        by.exchange(between, dict.fromkeys(shares, mine), shares)


def _broadcast_to_all(hosts: Hosts, by: Means, array: Array, home: int, speaker: int, between: Subset | None) -> None:
    """Send all of it to the other hosts, which pass on each piece when it is there."""
    parts = pieces(array.reshape(-1), _PIECE_NBYTES)
    sends: list[Any] = []
    coming: list[Any] = []
    if between is not None and hosts.here == home:
        sends = [
            between.send_bytes(memoryview(piece.view(np.uint8)), peer, COLLECTIVE_TAG, True)
            for piece in parts
            for peer in range(between.size)
            if peer != home
        ]
    elif between is not None:
        coming = [
            between.receive_bytes(memoryview(piece.view(np.uint8)), home, COLLECTIVE_TAG, True) for piece in parts
        ]
    for index, piece in enumerate(parts):
        if between is not None:
            streams.wait_for(between, coming[index : index + 1], by.deadline)
        by.on_host(Call("broadcast", piece, root=speaker))
    if between is not None:
        streams.wait_for(between, sends, by.deadline)


def all_gather(hosts: Hosts, by: Means, parts: Sequence[Array], array: Array) -> None:
    """Copy what each rank has to all: first to those that answer for it, then on each host what came to its ranks."""
    if len(hosts.ranks) > FEW_RANKS and hosts.across is not None:  # hosts are even
        counterparts = [parts[host[hosts.place]] for host in hosts.ranks]
        derived.all_gather(hosts.across, counterparts, array, by.deadline)
    else:
        by.copy(parts[hosts.rank], array)
        _pass_on(hosts, by, [_flat(part) for part in parts])
    for host in range(len(hosts.ranks)):
        for row in hosts.rows(host):
            outs = _filled(hosts, [parts[rank] for rank in row])
            by.on_host(Call("all_gather", outs[hosts.place], outs=outs))


def _pass_on(hosts: Hosts, by: Means, parts: Sequence[Array]) -> None:
    """Send what this rank has to those that answer for it, and take what those have for whom it answers."""
    place, away = hosts.partners.ranks.index, [host for host in range(len(hosts.ranks)) if host != hosts.here]
    sent = {place(hosts.partner(host)): parts[hosts.rank] for host in away}
    rows = [row for host in away for row in hosts.rows(host) if hosts.place < len(row)]
    taken = {place(row[hosts.place]): parts[row[hosts.place]] for row in rows}
    sent, taken = ({at: part for at, part in lanes.items() if part.size} for lanes in (sent, taken))
    by.exchange(hosts.partners, sent, taken)


def all_to_all(hosts: Hosts, by: Means, outs: Sequence[Array], ins: Sequence[Array]) -> None:
    """Copy a part to each rank: at the board of a host, and straight to all ranks of other hosts."""
    here, ranks = hosts.ranks[hosts.here], hosts.away.ranks
    mine, theirs = [ins[rank] for rank in here], [outs[rank] for rank in here]
    by.on_host(Call("all_to_all", ins[hosts.rank], ins=mine, outs=theirs))
    sent, taken = (
        {place: _flat(parts[rank]) for place, rank in enumerate(ranks) if rank != hosts.rank and parts[rank].size}
        for parts in (ins, outs)
    )
    by.exchange(hosts.away, sent, taken)


def gather(hosts: Hosts, by: Means, array: Array, outs: Sequence[Array] | None, root: int) -> None:
    """Copy what each rank has to one: at the board of its host, and straight from all ranks of other hosts."""
    here, between = _around(hosts, root)
    if root in here:
        by.on_host(Call("gather", array, root=here.index(root), outs=outs and [outs[rank] for rank in here]))
    if between is not None and (lanes := _lanes(between, root, array, outs)):
        by.exchange(between, {} if outs else lanes, lanes if outs else {})


def scatter(hosts: Hosts, by: Means, array: Array, ins: Sequence[Array] | None, root: int) -> None:
    """Copy a part of what one rank has to each: straight to all ranks of other hosts, then at the board of its own."""
    here, between = _around(hosts, root)
    if between is not None and (lanes := _lanes(between, root, array, ins)):
        by.exchange(between, lanes if ins else {}, {} if ins else lanes)
    if root in here:
        by.on_host(Call("scatter", array, root=here.index(root), ins=ins and [ins[rank] for rank in here]))


def _around(hosts: Hosts, root: int) -> tuple[Sequence[int], Subset | None]:
    """Return the ranks of this host; and a root and all ranks of other hosts than its own, if this is one of them."""
    here = hosts.ranks[hosts.here]
    ranks = [rank for host in hosts.ranks for rank in host if rank == root or root not in host]
    return here, hosts.among(ranks) if hosts.rank in ranks else None


def _lanes(between: Subset, root: int, array: Array, parts: Sequence[Array] | None) -> Lanes:
    """Return what a root has for the others, or a rank for the root: what is not empty."""
    others = {root: array} if parts is None else {rank: parts[rank] for rank in between.ranks if rank != root}
    return {between.ranks.index(rank): _flat(part) for rank, part in others.items() if part.size}


def _divided(between: Subset, total: Array) -> tuple[Array, dict[int, Array]]:
    """Return the share of an array that this rank reduces, and those of the others."""
    shares = dict(enumerate(cut(total, between.size)))
    return shares.pop(between.rank), shares


def _flat(array: Array) -> Array:
    """Return the bytes of an array."""
    flat: Array = array.reshape(-1).view(np.uint8)
    return flat
