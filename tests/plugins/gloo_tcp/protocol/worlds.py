"""Ranks whose inboxes and outboxes talk through queues, which the test empties in any order; and what MPI says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest import mock

import numpy as np

from rankwise.backends import MAX_TAG
from rankwise.errors import DistBackendError, DistError, GroupAbortedError, PeerDiedError
from rankwise_gloo_tcp.protocol import flow
from rankwise_gloo_tcp.protocol.dtypes import Dtypes
from rankwise_gloo_tcp.protocol.frames import Header, Kind
from rankwise_gloo_tcp.protocol.inbox import Inbox
from rankwise_gloo_tcp.protocol.matching import Arrival
from rankwise_gloo_tcp.protocol.message import Destination, Message
from rankwise_gloo_tcp.protocol.outbox import Outbox

WINDOW, OVERHEAD, STEP = 1024, 16, 256
SIZES = (0, 1, 7, STEP - OVERHEAD - 1, STEP, WINDOW // 2, WINDOW - OVERHEAD, WINDOW - OVERHEAD + 1, 3 * WINDOW)
DTYPES = [np.dtype(name) for name in ("u1", "f4", "<i8")] + [np.dtype([("a", "u1"), ("b", ">i4")])]
IN_STEP = MAX_TAG + 5


@contextmanager
def small_windows() -> Iterator[None]:
    with mock.patch.multiple(flow, WINDOW_NBYTES=WINDOW, MESSAGE_NBYTES=OVERHEAD, _STEP_NBYTES=STEP):
        yield


class Request:
    """A send or a receive."""

    def __init__(self, buffer: bytearray, peer: int | None, tag: int, dtype: int) -> None:
        self.buffer, self.peer, self.tag, self.dtype = memoryview(buffer), peer, tag, dtype
        self.nbytes, self.done = 0, False
        self.error: BaseException | None = None
        self.source: int | None = None

    def end(self, error: BaseException | None = None, source: int | None = None) -> None:
        if not self.done:
            self.done, self.error, self.source = True, error, source


@dataclass(eq=False)
class Issued:
    """A message that was issued, and the receive that it must meet."""

    source: int
    tag: int
    content: bytes
    dtype: int
    request: Request
    receive: Request | None = None


@dataclass
class Link:
    """One direction between two ranks: frames on their way, and the messages that they must announce, in this order."""

    frames: deque[tuple[Header, bytes, Request | None]] = field(default_factory=deque)
    begun: tuple[Destination, bytes] | None = None
    begun_nbytes: int = 0
    unannounced: deque[Issued] = field(default_factory=deque)


class Rank:
    """One rank: its halves, and the `FrameSender` of both."""

    def __init__(self, world: World, rank: int, size: int) -> None:
        self.world, self.rank = world, rank
        self.dtypes = Dtypes()
        names = tuple(range(10, 10 + size))
        self.inbox, self.outbox = (half(rank, names, self, self.dtypes) for half in (Inbox, Outbox))
        self.gone: set[int] = set()
        self.left = self.leaving = self.aborted = False
        self.fetching: list[tuple[Arrival[Message], Message]] = []
        #: Credit that waits for another frame, by rank.
        self.owed: dict[int, int] = {}
        #: The model: what waits here, in the order in which it came.
        self.receives: list[Request] = []
        self.messages: list[Issued] = []

    def emit(
        self,
        to: int,
        header: Header,
        payload: memoryview | None = None,
        request: Any = None,
        prefix: bytes = b"",
    ) -> bool:
        if to in self.gone:
            if request is not None:
                request.end(goodbye(to))
            return False
        self.pay(to)
        # What is sent may only be read while its send has not ended: it is copied when it leaves.
        data: Any = (prefix, payload if payload is not None else memoryview(b""))
        self.world.links[self.rank, to].frames.append((header, data, request))
        return True

    def reply(self, to: int, header: Header) -> bool:
        return self.emit(to, header)

    def give_credit(self, to: int, nbytes: int, in_step: bool) -> None:
        self.owed[to] = self.owed.get(to, 0) + nbytes
        if not in_step:
            self.pay(to)

    def pay(self, to: int) -> None:
        nbytes = self.owed.pop(to, 0)
        if nbytes and to not in self.gone:
            self.world.links[self.rank, to].frames.append((Header(Kind.CREDIT, length=nbytes), (b"", b""), None))

    def refresh(self, to: int) -> None:
        frames = self.world.links[to, self.rank].frames
        if frames and frames[0][0].kind != Kind.ABORT and self.world.random.random() < 0.3:  # that ends things later
            self.world.deliver(to, self.rank)

    def unasked_nbytes(self, to: int, in_step: bool) -> int:
        return self.world.unasked[in_step]

    def address(self, to: int, request: Message) -> int:
        if not self.world.readable:
            return 0
        self.world.memory.append(request)
        return len(self.world.memory)

    def fetch(self, arrival: Arrival[Message], receive: Message) -> bool:
        if arrival.header.address and self.world.random.random() < 0.7:
            self.fetching.append((arrival, receive))
            return True
        return False

    def fail_request(self, request: Message, source: int) -> None:
        request.end(goodbye(source))


def goodbye(rank: int) -> DistError:
    return PeerDiedError(rank, "here", "it has destroyed the group")


class World:
    """All ranks, and all that is on its way."""

    def __init__(self, size: int, random: Random) -> None:
        self.size, self.random = size, random
        limits = [0, 100, WINDOW // 2, 1 << 62]
        self.unasked = random.choice(limits), random.choice(limits)
        self.readable = random.random() < 0.5
        self.memory: list[Any] = []
        self.ranks = [Rank(self, rank, size) for rank in range(size)]
        self.links = {(a, b): Link() for a in range(size) for b in range(size) if a != b}
        self.issued: list[Issued] = []
        self.received: list[tuple[Rank, Request]] = []

    # ------------------------------------------------------------------ what programs do

    def send(self, rank: int, to: int, tag: int, nbytes: int, dtype: int, prefix_nbytes: int) -> None:
        me = self.ranks[rank]
        if me.leaving or me.aborted or to in me.gone:
            return
        data = self.random.randbytes(nbytes)
        in_step = tag > MAX_TAG
        mark = 0 if in_step else me.dtypes.mark(DTYPES[dtype])
        request = Request(bytearray(data), to, tag, mark)
        prefix = b"<prefix>"[:prefix_nbytes] if in_step and to != rank else b""
        message = Issued(rank, tag, prefix + data, mark, request)
        self.issued.append(message)
        if to == rank:
            self._announce(me, message)
            me.inbox.send_to_self(request)
        else:
            self.links[rank, to].unannounced.append(message)
            me.outbox.send(request, to, prefix)

    def receive(self, rank: int, source: int | None, tag: int, nbytes: int, dtype: int) -> None:
        me = self.ranks[rank]
        if me.leaving or me.aborted:
            return
        mark = me.dtypes.mark(DTYPES[dtype]) if tag <= MAX_TAG else 0
        request = Request(bytearray(b"\xee" * nbytes), source, tag, mark)
        self.received.append((me, request))
        message = next((m for m in me.messages if m.tag == tag and source in (None, m.source)), None)
        assert me.inbox.receive(request) == (message is not None)
        if message is not None:
            me.messages.remove(message)
            message.receive = request
        elif source in me.gone:
            assert me.inbox.withdraw(request)
            me.fail_request(request, source)  # type: ignore[arg-type]
        else:
            me.receives.append(request)

    def withdraw(self, rank: int) -> None:
        me = self.ranks[rank]
        if me.receives and not me.aborted:
            request = self.random.choice(me.receives)
            assert me.inbox.withdraw(request)
            me.receives.remove(request)
            request.end(DistBackendError("withdrawn"))
        met = [m.receive for m in self.issued if m.receive is not None]
        if met:
            assert not me.inbox.withdraw(self.random.choice(met))

    def leave(self, rank: int) -> None:
        """Begin to destroy the group, as the engine does."""
        me = self.ranks[rank]
        if not me.leaving and not me.aborted:
            me.leaving = me.inbox.closing = True
            for to in me.outbox.offered_to():
                me.emit(to, Header(Kind.LEAVING))

    def abort(self, rank: int) -> None:
        me = self.ranks[rank]
        if me.aborted or me.left:
            return
        me.aborted = True
        ended = [*me.inbox.clear(), *me.outbox.clear(), *(receive for _, receive in me.fetching)]
        me.fetching.clear()
        for (source, to), link in self.links.items():
            if source == rank:
                ended += [request for _, _, request in link.frames if request is not None]
                link.frames.clear()
                me.emit(to, Header(Kind.ABORT))
            elif to == rank and link.begun is not None:
                if link.begun[0].request is not None:
                    ended.append(link.begun[0].request)  # type: ignore[arg-type]
                link.begun = None
        for request in ended:
            request.end(GroupAbortedError("on purpose"))

    # ------------------------------------------------------------------ what moves

    def steps(self) -> list[Callable[[], object]]:
        """Return all that could happen next by itself."""
        steps: list[Callable[[], object]] = []
        for (source, to), link in self.links.items():
            if link.frames or link.begun is not None:
                steps.append(lambda source=source, to=to: self.deliver(source, to))
        steps += [lambda me=me: self._fetch(me) for me in self.ranks if me.fetching and not me.left]
        steps += [lambda me=me: self._say_goodbye(me) for me in self.ranks if self._may_go(me)]
        return steps

    def step(self) -> bool:
        steps = self.steps()
        if steps:
            self.random.choice(steps)()
            self.check()
        return bool(steps)

    def deliver(self, source: int, to: int) -> None:
        """Go on with a link: the next header, or more of the payload that has begun."""
        link, me = self.links[source, to], self.ranks[to]
        if link.begun is not None:
            self._go_on(link)
        elif link.frames:
            header, (prefix, payload), request = link.frames.popleft()
            data = prefix + bytes(payload)
            if header.kind in (Kind.MESSAGE, Kind.PAYLOAD):
                assert len(data) == header.length
            if request is not None:
                assert not request.done
                request.end()
                if not request.buffer.readonly:  # as the copy of one with a prefix is
                    request.buffer[:] = b"\xdd" * len(request.buffer)  # the caller's again
            if not me.left:
                self._take(link, me, source, header, data)

    def _go_on(self, link: Link) -> None:
        assert link.begun is not None
        incoming, data = link.begun
        at = link.begun_nbytes
        upto = min(len(data), at + self.random.choice([1, 100, 1 << 20]))
        if incoming.target is not None and not (incoming.request is not None and incoming.request.done):
            incoming.target[at:upto] = data[at:upto]
        link.begun_nbytes = upto
        if upto == len(data):
            link.begun = None
            incoming.whole()

    def _take(self, link: Link, me: Rank, source: int, header: Header, data: bytes) -> None:
        kind = header.kind
        if kind in (Kind.MESSAGE, Kind.OFFER) and not me.aborted:
            message = link.unannounced.popleft()
            assert (header.tag, header.length, header.dtype) == (message.tag, len(message.content), message.dtype)
            self._announce(me, message)
        if kind in (Kind.MESSAGE, Kind.PAYLOAD):
            link.begun = (me.inbox.message if kind == Kind.MESSAGE else me.inbox.payload)(source, header), data
            link.begun_nbytes = 0
        elif kind == Kind.DTYPE:
            me.dtypes.learn(header.dtype, data)
        elif kind == Kind.ABORT:
            self.abort(me.rank)
        elif kind == Kind.LEAVING:
            me.inbox.leaving(source)
        elif kind == Kind.GOODBYE:
            self._part(me, source)
        else:
            kinds = {Kind.OFFER: me.inbox.offer, Kind.REQUEST: me.outbox.requested, Kind.RECEIPT: me.outbox.received}
            kinds |= {Kind.REFUSAL: me.outbox.refused, Kind.CREDIT: me.outbox.credited}
            kinds[kind](source, header)

    def _announce(self, me: Rank, message: Issued) -> None:
        """Note in the model that a message has come to where it meets its receive."""
        receive = next((r for r in me.receives if r.tag == message.tag and r.peer in (None, message.source)), None)
        if receive is None:
            me.messages.append(message)
        else:
            me.receives.remove(receive)
            message.receive = receive

    def _fetch(self, me: Rank) -> None:
        arrival, receive = me.fetching.pop(0)
        sender = self.memory[arrival.header.address - 1]
        copied = self.random.random() < 0.7 and not self.ranks[arrival.source].aborted
        if copied:
            assert not sender.done, "memory is the caller's again"
            receive.buffer[: arrival.header.length] = sender.buffer
        me.inbox.fetched(arrival, receive, copied)

    def _may_go(self, me: Rank) -> bool:
        sent = not any(link.frames for (source, _), link in self.links.items() if source == me.rank)
        return me.leaving and not me.left and not me.aborted and sent and not me.outbox.outstanding()

    def _say_goodbye(self, me: Rank) -> None:
        me.left = True
        for to in range(self.size):
            if to != me.rank:
                me.emit(to, Header(Kind.GOODBYE))

    def _part(self, me: Rank, source: int) -> None:
        me.gone.add(source)
        gone = goodbye(source)
        me.inbox.left(source, gone)
        me.outbox.left(source, gone)
        me.receives = [r for r in me.receives if r.peer != source]
        link = self.links[me.rank, source]
        for _, _, request in link.frames:
            if request is not None:
                request.end(gone)
        link.frames.clear()
        if not me.leaving and not me.aborted:
            assert all(a.data is not None and a.complete for a in me.inbox.matching.arrivals() if a.source == source)

    # ------------------------------------------------------------------ what must hold

    def check(self) -> None:
        """Check what holds at any time: memory is bounded, and credit is exact."""
        for (source, to), link in self.links.items():
            me, sender = self.ranks[to], self.ranks[source]
            if me.aborted or sender.aborted or me.left or sender.left or to in sender.gone:
                continue
            waiting = [*me.inbox.matching.arrivals(), *me.inbox._claims.values()]
            waiting = [a for a in waiting if a.source == source and a.header.kind == Kind.MESSAGE]
            kept = sum(a.header.length + OVERHEAD for a in waiting)
            assert kept <= WINDOW
            under_way = sum(h.length + OVERHEAD for h, _, _ in link.frames if h.kind == Kind.MESSAGE)
            coming_back = sum(h.length for h, _, _ in self.links[to, source].frames if h.kind == Kind.CREDIT)
            coming_back += me.owed.get(source, 0)
            ledger, spent = me.inbox._ledgers[source], sender.outbox.windows[to].unconfirmed
            # What is coming straight into a receive is counted when it is there.
            straight = 0
            if link.begun is not None and link.begun[0].request is not None:
                straight = len(link.begun[1]) + OVERHEAD
            assert ledger._kept == kept
            assert 0 <= under_way + kept + ledger._due + coming_back <= spent <= WINDOW
            assert spent - (under_way + kept + ledger._due + coming_back) in (0, straight)

    def drain(self) -> None:
        """Let everything arrive, and check what must hold then."""
        while self.step():
            pass
        for link in self.links.values():
            assert not link.frames
            assert link.begun is None
        aborted = any(me.aborted for me in self.ranks)
        for message in self.issued:
            if message.receive is not None and not aborted and not any(me.left for me in self._owners(message.receive)):
                self._check_pair(message, message.receive)
        for me in self.ranks:
            assert me.left or me.aborted or not me.leaving, "destroy stands still"
            if me.aborted:
                assert all(r.done for owner, r in self.received if owner is me)
                assert all(m.request.done for m in self.issued if m.source == me.rank)
                continue
            assert all(m.request.done for m in self.issued if m.source == me.rank and m.request.peer in me.gone)
            if not me.left:
                assert not any(r.done for r in me.receives)
                assert len(list(me.inbox.matching.arrivals())) == len(me.messages)
        if not aborted:
            assert all(not link.unannounced for (_, to), link in self.links.items() if not self.ranks[to].left)

    def _owners(self, receive: Request) -> list[Rank]:
        return [owner for owner, other in self.received if other is receive]

    def _check_pair(self, message: Issued, receive: Request) -> None:
        content, name = message.content, self.ranks[message.source].dtypes.name
        assert receive.done
        assert receive.source == message.source
        if not self.ranks[0].dtypes.accepts(receive.dtype, message.dtype):
            assert isinstance(receive.error, DistBackendError)
            assert name(message.dtype) in str(receive.error)
        elif len(content) > len(receive.buffer):
            assert f"{len(content)} bytes" in str(receive.error)
        else:
            assert receive.error is None
            assert receive.nbytes == len(content)
            assert bytes(receive.buffer[: len(content)]) == content
            assert message.request.done
            assert message.request.error is None
            assert bytes(receive.buffer[len(content) :]) == b"\xee" * (len(receive.buffer) - len(content))
            return
        assert message.request.done
        assert bytes(receive.buffer) == b"\xee" * len(receive.buffer)
