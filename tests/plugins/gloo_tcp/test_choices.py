"""Every rank goes the same way, and has room for exactly what the others send, on both sides of every threshold.

No process runs here. For each rank the way is chosen from its own arguments, and what it would send and receive is
written down; then the notes of all ranks are compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rankwise.backends import Call, Deadline, ReduceOp, accumulation_dtype, fitting_algorithm
from rankwise.collective.algorithms.table import CHOICES, AlgorithmChoice
from rankwise_gloo_tcp.collectives import several_hosts
from rankwise_gloo_tcp.collectives.along import Along
from rankwise_gloo_tcp.collectives.between_hosts import BetweenHosts
from rankwise_gloo_tcp.collectives.opening import inline_nbytes
from rankwise_gloo_tcp.collectives.relay import EACH_ITS_OWN, Relayed, travelling
from rankwise_gloo_tcp.collectives.selection import Selection
from rankwise_gloo_tcp.collectives.streams import Spread
from rankwise_gloo_tcp.collectives.tables import MIXED, NETWORK, along_nbytes
from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.engine import Engine

SIZES = (2, 3, 4, 5, 8, 9, 16, 17)
#: How hosts can divide ranks: evenly or not, in any order, the first rank alone.
HOSTS = ([[0, 1], [2, 3]], [[0, 3], [1, 2]], [[0, 1], [2]], [[0], [1, 2, 3, 4]], [[0, 4, 8], [1, 5, 6], [2, 3, 7]])
F16, BF16, F8 = np.dtype("f2"), np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)
REDUCTIONS = [
    *((np.dtype("f4"), name) for name in ("SUM", "AVG", "PREMUL_SUM")),
    *((dtype, name) for dtype in (F16, BF16, F8) for name in ("SUM", "AVG", "PREMUL_SUM")),
    (np.dtype("f8"), "PREMUL_SUM"),
    (np.dtype("i8"), "MAX"),
    (np.dtype(">i4"), "SUM"),
]
PLAIN = [np.dtype("u1"), np.dtype(">f8"), np.dtype([("a", "u1"), ("b", "<i4")]), np.dtype("M8[s]")]
ROOTED, REDUCING = {"broadcast", "reduce", "gather", "scatter"}, {"all_reduce", "reduce", "reduce_scatter"}
DEADLINE = Deadline(10.0)
#: What an algorithm calls the function that it is of.
_STEPS = ("func", "algorithm")


@dataclass
class Notes:
    """What one rank would do: its way, its messages by peer and tag, and its calls on its own host."""

    way: list[str] = field(default_factory=list)
    sent: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    room: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    local: list[tuple[Any, ...]] = field(default_factory=list)
    body: Any = None


class Ended(SimpleNamespace):
    done, error, peer, nbytes = True, None, None, 0

    def wait(self, timeout: float | None = None) -> bool:
        return True


class Quiet(Engine):
    """An engine whose messages are only written down."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(EngineConfig(rank, [], b"", False, tuple(range(size)), 10.0, lambda error: None, False))
        self.notes = Notes()

    @staticmethod
    @cache
    def of(rank: int, size: int) -> Quiet:
        """Return the one engine of a rank: it keeps nothing of a call but the notes, and to make it takes long."""
        return Quiet(rank, size)

    def send_bytes(self, data: memoryview, to: int, tag: int, *_: object, **__: object) -> Any:
        self.notes.sent[to, tag].append(len(data))
        return Ended()

    def receive_bytes(self, room: memoryview, source: int, tag: int, *_: object, **__: object) -> Any:
        self.notes.room[source, tag].append(len(room))
        return Ended()


class Comm:
    """A communicator that runs nothing, and writes down what it was to run."""

    connections = 1

    def __init__(self, rank: int, size: int, notes: Notes) -> None:
        self.rank, self.size, self.notes = rank, size, notes
        self.selection, self.engine = Selection({}), Quiet.of(rank, size)
        self.engine.notes = notes
        self.context: Any = SimpleNamespace(global_ranks=tuple(range(size)))
        several = self.connections > 1
        self.spread = partial(Spread, self.engine, self.connections, self.context) if several else None
        self.order = SimpleNamespace(serves_here=None)
        self.fail = None
        self.isend, self.irecv = self.engine.send, self.engine.receive

    def note(self, call: Call, body: Any) -> None:
        self.notes.body = body
        self.notes.way += [
            call.op,
            type(body).__name__,
            *(getattr(getattr(body, name, None), "__name__", "") for name in _STEPS),
        ]
        self.notes.way += [getattr(a, "__name__", "") for a in getattr(body, "args", ())]


class OnHost:
    """The group of one host, whose calls are only written down: all that must be the same on its ranks."""

    def __init__(self, place: int, size: int, notes: Notes) -> None:
        self.size, self._place, self._notes, self.on_failure = size, place, notes, None
        self.rank, self.board, self.strategy = place, None, None
        self.engine = Quiet.of(place, size)

    def run(self, call: Call, *_: object) -> None:
        parts = call.ins or call.outs
        if call.op in ("gather", "scatter"):  # what the root alone has of all
            assert (parts is not None) == (call.root == self._place)
            self._notes.local.append((call.op, call.root))
        elif parts is None:
            self._notes.local.append((call.op, call.array.nbytes, call.root))
        else:
            assert call.array.nbytes == parts[self._place].nbytes
            sizes = [part.nbytes for part in parts]
            self._notes.local.append((call.op, len(sizes) if call.op == "all_to_all" else sizes))


@pytest.fixture(autouse=True)
def no_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make accumulators that take no memory, and leave them alone."""

    def accumulator(op: ReduceOp, array: Any) -> Any:
        return np.empty(array.size, accumulation_dtype(op.name, array.dtype))

    monkeypatch.setattr(ReduceOp, "accumulator", accumulator)
    for name in ("combine", "merge", "finish", "average"):
        monkeypatch.setattr(ReduceOp, name, lambda *_: None)


@pytest.fixture(autouse=True, params=[1, 3])
def connections(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each pair have so many connections."""
    monkeypatch.setattr(Comm, "connections", request.param)


Table = Mapping[str, Sequence[AlgorithmChoice]]


def edges(op: str, table: Table) -> list[int]:
    """Return the sizes at which something changes for an operation."""
    lines = [*CHOICES[op], *table[op]]
    found = {line.max_nbytes for line in lines if line.max_nbytes is not None}
    most = map(inline_nbytes, (2, 3)) if table is NETWORK else map(along_nbytes, ([2, 2], [3, 3, 3]))
    return sorted(found | {0, *most})


def counts(op: str, dtype: np.dtype[Any], reduction: str, table: Table) -> Iterator[int]:
    """Return numbers of elements whose bytes, or the bytes of what is summed, are on either side of each edge."""
    sizes = {dtype.itemsize}
    if op in REDUCING:
        sizes.add(accumulation_dtype(reduction, dtype).itemsize)
    found = {edge // itemsize + more for edge in edges(op, table) for itemsize in sizes for more in (0, 1)}
    thorough = (dtype, reduction) in [(F16, "PREMUL_SUM"), (np.dtype("f4"), "SUM"), (np.dtype("u1"), "SUM")]
    return (count for count in sorted(found) if count * max(sizes) < 600_000 or thorough)


def shares(count: int, size: int, alike: bool) -> list[int]:
    """Return of how many elements each part of so many in all is."""
    return [count // size if alike else count * (i + 1) // size - count * i // size for i in range(size)]


def call(strategy: Any, op: str, sizes: list[int], count: int, kind: tuple[Any, str], root: int) -> Call:
    """Return one rank's call on arrays of `count` elements, or on parts of these sizes, with anything in them.

    Args:
        strategy: The rank's.
        op: The operation.
        sizes: Of the parts.
        count: Of what has no parts.
        kind: The dtype, and the name of the reduce op.
        root: The root.
    """
    rank, (dtype, reduction) = strategy.rank, kind
    parts = [np.empty(each, dtype) for each in sizes]
    array, own = np.empty(count if op in ("broadcast", "all_reduce", "reduce") else 0, dtype), parts[rank]
    how = ReduceOp.PREMUL_SUM(0.5 + rank) if reduction == "PREMUL_SUM" else getattr(ReduceOp, reduction)
    at_root = parts if rank == root else None
    calls: dict[str, Callable[[], Call]] = {
        "broadcast": lambda: Call(op, array, root=root),
        "all_reduce": lambda: Call(op, array, how),
        "reduce": lambda: Call(op, array, how, root),
        "all_gather": lambda: Call(op, np.empty_like(own), outs=parts),
        "gather": lambda: Call(op, np.empty_like(own), root=root, outs=at_root),
        "scatter": lambda: Call(op, np.empty_like(own), root=root, ins=at_root),
        "reduce_scatter": lambda: Call(op, np.empty_like(own), how, ins=parts),
        "all_to_all": lambda: Call(
            op, own, ins=_to_all(parts, own), outs=list(map(np.empty_like, _to_all(parts, own)))
        ),
    }
    return calls[op]()


def note(strategies: list[Any], calls: list[Call]) -> None:
    """Note what ranks are about to run: on several hosts, where each decides for itself, only what all send along."""
    ways = [strategy.prepare(made) for strategy, made in zip(strategies, calls, strict=True)]
    among_hosts = isinstance(strategies[0], several_hosts.SeveralHosts)
    if among_hosts and calls[0].op in EACH_ITS_OWN and (None in ways or len({way.given_nbytes for way in ways}) > 1):
        ways = [None] * len(ways)
    for strategy, made, way in zip(strategies, calls, ways, strict=True):
        strategy.comm.note(made, way or strategy.algorithm(made))


def _to_all(parts: list[Any], own: Any) -> list[Any]:
    return [part[: min(part.size, own.size)] for part in parts]


def hand_over(kinds: list[Along], calls: list[Call]) -> None:
    """Carry out what goes along with the opening: what each rank sends to another is as long as that one expects."""
    size = len(kinds)
    given = [kind.bind(made) for kind, made in zip(kinds, calls, strict=True)]
    arrays = [kind.offer(each) for kind, each in zip(kinds, given, strict=True)]
    for rank, kind in enumerate(kinds):
        for peer in set(range(size)) - {rank}:
            going = kind.sent.get(peer)
            nbytes = 0 if going is None else arrays[rank][going[0]].nbytes
            assert nbytes == (0 if going is None else going[1]) == kinds[peer].expected.get(rank, 0)
            assert nbytes <= inline_nbytes(size)
        kind.take(given[rank], arrays[rank], DEADLINE)


def run(all_notes: list[Notes], calls: list[Call], sizes: list[int]) -> None:
    """Run what the ranks were about to run; what goes with the opening is handed over here."""
    if isinstance(all_notes[0].body, Along):
        hand_over([notes.body for notes in all_notes], calls)
        return
    for notes in all_notes:
        if isinstance(notes.body, Relayed):
            assert notes.body.nbytes == all_notes[0].body.nbytes <= along_nbytes([2, 2])
            assert notes.body.given_nbytes == all_notes[0].body.given_nbytes
        else:
            notes.body(DEADLINE, sizes)


def compare(all_notes: list[Notes]) -> None:
    """Check that all have gone the same way, and that each message meets room for it, on the same connection."""
    assert all(notes.way == all_notes[0].way for notes in all_notes)
    size = len(all_notes)
    coming, going = {}, {}
    for rank, notes in enumerate(all_notes):
        for (peer, tag), room in notes.room.items():
            coming[peer % size, rank, peer // size, tag] = room
        for (peer, tag), sent in notes.sent.items():
            going[rank, peer % size, peer // size, tag] = sent
    assert coming == going


CASES = [(op, dtype, name) for op in sorted(REDUCING) for dtype, name in REDUCTIONS] + [
    (op, dtype, "SUM") for op in ("broadcast", "all_gather", "gather", "scatter", "all_to_all") for dtype in PLAIN
]


@pytest.mark.parametrize(("op", "dtype", "reduction"), CASES)
def test_ranks_of_one_host_each_choose_alike(op: str, dtype: np.dtype[Any], reduction: str) -> None:
    for size in SIZES:
        for count in counts(op, dtype, reduction, NETWORK):
            for root in {0, size - 1} if op in ROOTED else {0}:
                all_notes = [Notes() for _ in range(size)]
                comms: list[Any] = [Comm(rank, size, notes) for rank, notes in enumerate(all_notes)]
                strategies = [BetweenHosts(comm) for comm in comms]
                sizes = shares(count, size, alike=False)
                calls = [call(strategy, op, sizes, count, (dtype, reduction), root) for strategy in strategies]
                note(strategies, calls)
                run(all_notes, calls, sizes)
                compare(all_notes)


@pytest.mark.parametrize("size", [2, 9])
@pytest.mark.parametrize(
    ("op", "forced"), [("reduce", "hosts"), ("broadcast", "segments"), ("reduce_scatter", "along")]
)
def test_a_forced_algorithm_that_is_impossible_gives_way_to_the_table(op: str, forced: str, size: int) -> None:
    comm: Any = Comm(0, size, Notes())
    comm.selection = Selection({op: forced})
    nbytes = 1 << 30
    of_the_table = fitting_algorithm(op, nbytes, size, NETWORK).name
    possible = (op, size) == ("broadcast", 2)
    assert BetweenHosts(comm).choose(op, nbytes) == (forced if possible else of_the_table)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", NETWORK)
def test_a_bound_says_what_goes_along(op: str, size: int) -> None:
    known = edges(op, NETWORK) if op in REDUCING or op == "broadcast" else [0]  # of other calls ranks know no size
    for forced in ("", *dict.fromkeys(line.name for line in NETWORK[op])):
        comm: Any = Comm(0, size, Notes())
        comm.selection = Selection({op: forced} if forced else {})
        strategy = BetweenHosts(comm)
        for nbytes in (edge + more for edge in known for more in (0, 1)):
            goes = strategy.choose(op, nbytes) in ("along", "direct")
            assert (nbytes <= strategy.along_nbytes(op)) == goes, (forced, nbytes)


@pytest.mark.parametrize("forced", ["", "along", "hosts"])
@pytest.mark.parametrize("hosts", HOSTS, ids=str)
@pytest.mark.parametrize(("op", "dtype", "reduction"), [case for case in CASES if case[0] not in EACH_ITS_OWN])
def test_so_it_does_among_several_hosts(
    op: str, dtype: np.dtype[Any], reduction: str, hosts: list[list[int]], forced: str
) -> None:
    size, notes = sum(map(len, hosts)), Notes()
    comm: Any = Comm(0, size, notes)
    comm.selection = Selection({op: forced} if forced else {})
    local: Any = OnHost(0, len(hosts[0]), notes)
    strategy = several_hosts.SeveralHosts(comm, hosts, local)
    for count in counts(op, dtype, reduction, MIXED):
        made = call(strategy, op, shares(count, size, alike=True), count, (dtype, reduction), 0)
        assert (travelling(made) <= strategy.along_nbytes(op)) == (strategy.prepare(made) is not None), count


@pytest.mark.parametrize("alike", [False, True], ids=["", "parts alike"])
@pytest.mark.parametrize("hosts", HOSTS, ids=str)
@pytest.mark.parametrize(("op", "dtype", "reduction"), CASES)
def test_ranks_of_several_hosts_choose_alike(
    op: str, dtype: np.dtype[Any], reduction: str, hosts: list[list[int]], alike: bool
) -> None:
    size = sum(map(len, hosts))
    host_of = {rank: host for host in hosts for rank in host}
    for count in counts(op, dtype, reduction, MIXED):
        root, sizes = count % size, shares(count, size, alike)
        all_notes = [Notes() for _ in range(size)]
        comms: list[Any] = [Comm(rank, size, notes) for rank, notes in enumerate(all_notes)]
        local: list[Any] = [
            OnHost(host_of[rank].index(rank), len(host_of[rank]), notes) for rank, notes in enumerate(all_notes)
        ]
        strategies = [several_hosts.SeveralHosts(comm, hosts, local[comm.rank]) for comm in comms]
        calls = [call(strategy, op, sizes, count, (dtype, reduction), root) for strategy in strategies]
        note(strategies, calls)
        run(all_notes, calls, sizes)
        compare(all_notes)
        for host in hosts:
            assert all(all_notes[rank].local == all_notes[host[0]].local for rank in host)
