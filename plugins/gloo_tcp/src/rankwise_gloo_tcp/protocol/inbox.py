"""What one rank receives: messages that come, receives that wait for them, and what is kept until they meet."""

from __future__ import annotations

from functools import partial

from rankwise.backends import Status, dtype_marked, too_long, wrong_dtype
from rankwise.errors import DistBackendError, DistError, ProtocolError
from rankwise_gloo_tcp.protocol.dtypes import Dtypes
from rankwise_gloo_tcp.protocol.flow import Ledger
from rankwise_gloo_tcp.protocol.frames import UNWANTED, Header, Kind
from rankwise_gloo_tcp.protocol.matching import Arrival, Matching
from rankwise_gloo_tcp.protocol.message import Destination, FrameSender, Message, nothing


class Inbox:
    """All that comes to one rank of one group.

    Args:
        rank: This rank.
        names: The global rank of each rank.
        sender: What carries the answers.
        dtypes: The group's dtypes.
    """

    __slots__ = (
        *("_awaited", "_claims", "_dtypes", "_given_up", "_ledgers", "_names", "_rank", "_sender", "adopting"),
        *("closing", "matching"),
    )

    def __init__(self, rank: int, names: tuple[int, ...], sender: FrameSender, dtypes: Dtypes) -> None:
        self._rank, self._names, self._sender, self._dtypes = rank, names, sender, dtypes
        self.matching: Matching[Message] = Matching()
        self._ledgers = [Ledger() for _ in names]
        #: Offered messages that were asked for: the receives they go to, or where they are kept.
        self._awaited: dict[tuple[int, int], Message | Arrival[Message]] = {}
        #: The receives that have met a message of which bytes are still to come.
        self._claims: dict[int, Arrival[Message]] = {}
        #: How many messages of peers that are about to leave have been asked for and have not begun to come.
        self.adopting = 0
        #: Whether nobody will receive here any more.
        self.closing = False
        #: Whether the group has been given up: what comes now goes nowhere.
        self._given_up = False

    # ------------------------------------------------------------------ what the program asks

    def receive(self, request: Message) -> bool:
        """Begin to receive; true if a message was there."""
        arrival = self.matching.post(request)
        if arrival is not None:
            self._meet(arrival, request)
        return arrival is not None

    def claim(self, room: memoryview, source: int | None, tag: int, dtype: int) -> tuple[int, int] | None:
        """Receive a message that is here whole, without a receive that would meet it.

        Returns:
            The sender and how many bytes the message has, or None if anything is unusual.
        """
        arrival = self.matching.first(source, tag)
        if arrival is None:
            return None
        header, data = arrival.header, arrival.data
        if header.kind != Kind.MESSAGE or not arrival.complete or data is None or arrival.local is not None:
            return None
        if header.length > len(room) or not (dtype == header.dtype or self._dtypes.accepts(dtype, header.dtype)):
            return None
        self.matching.forget(arrival)
        room[: header.length] = data
        self._release(arrival.source, header)
        return arrival.source, header.length

    def status(self, arrival: Arrival[Message]) -> Status:
        """Return what a message is."""
        header = arrival.header
        return Status(arrival.source, header.tag, header.length, dtype_marked(header.dtype))

    def withdraw(self, receive: Message) -> bool:
        """Take back a receive that no message has met."""
        return not receive.done and self.matching.withdraw(receive)

    def send_to_self(self, request: Message) -> None:
        """Deliver a message of this rank to itself."""
        header = Header(Kind.MESSAGE, 0, request.tag, len(request.buffer), dtype=request.dtype)
        arrival = Arrival(self._rank, header, request.buffer, complete=True, local=request)
        receive = self.matching.arrive(self._rank, request.tag)
        if receive is None:
            self.matching.keep(arrival)
        else:
            self._meet(arrival, receive)

    # ------------------------------------------------------------------ what comes

    def message(self, source: int, header: Header) -> Destination:
        """Take a message that comes with its payload."""
        if self._given_up:
            return Destination(None, nothing)
        receive = self.matching.arrive(source, header.tag)
        if receive is not None:
            return self.take_in(source, header, receive)
        self._ledgers[source].keep(header.length)
        arrival: Arrival[Message] = Arrival(source, header, bytearray(header.length))
        self.matching.keep(arrival)
        return self._into(arrival)

    def offer(self, source: int, header: Header) -> None:
        """Take an announcement."""
        if self._given_up:
            return
        arrival: Arrival[Message] = Arrival(source, header)
        receive = self.matching.arrive(source, header.tag)
        if receive is None:
            self.matching.keep(arrival)
        else:
            self._accept_offer(arrival, receive)

    def payload(self, source: int, header: Header) -> Destination:
        """Take the bytes of an offered message.

        Raises:
            ProtocolError: It was not asked for.
        """
        if self._given_up:
            return Destination(None, nothing)
        waiting = self._awaited.pop((source, header.ident), None)
        if isinstance(waiting, Arrival):
            if header.length == waiting.header.length:
                self.adopting -= 1
                return self._into(waiting)
        elif waiting is not None and header.length <= len(waiting.buffer):
            waiting.nbytes = header.length
            return Destination(waiting.buffer[: header.length], partial(waiting.end, None, source), waiting)
        raise ProtocolError("a payload came that was not asked for")

    def fetched(self, arrival: Arrival[Message], receive: Message, copied: bool) -> None:
        """Hear how an attempt to read an offered message from its sender's memory has ended."""
        if not copied:
            self.ask_for(arrival, receive)
            return
        receive.nbytes = arrival.header.length
        receive.end(None, arrival.source)
        self._sender.reply(arrival.source, Header(Kind.RECEIPT, ident=arrival.header.ident))

    def taken_directly(self, source: int, nbytes: int, in_step: bool) -> None:
        """Count a message that went from its connection straight into a receive."""
        due = self._ledgers[source].take(nbytes)
        if due:
            self._sender.give_credit(source, due, in_step)

    # ------------------------------------------------------------------ the ends of others

    def leaving(self, source: int) -> None:
        """Fetch what a peer has offered, as it is about to leave; a receive may come for it later."""
        for arrival in self.matching.arrivals():
            if arrival.source == source and arrival.data is None:
                self._adopt(arrival)

    def left(self, source: int, gone: DistError) -> None:
        """Handle `GOODBYE` of a peer: what it has sent is here, and nothing more will come."""
        for receive in self.matching.receives(source):
            self.matching.withdraw(receive)
            receive.end(gone)

    def died(self, source: int) -> None:
        """Forget the messages of a peer that has died of which not all bytes have come."""
        for arrival in self.matching.arrivals():
            if arrival.source == source and arrival.data is not None and not arrival.complete:
                self.matching.forget(arrival)
                self.adopting -= self._awaited.pop((source, arrival.header.ident), None) is arrival

    def needs(self, source: int) -> bool:
        """Tell whether a receive is waiting for something that only a certain peer can bring, or that anybody can."""
        if self.matching.receives(source) or self.matching.receives(None):
            return True
        return any(peer == source for peer, _ in self._awaited) or any(
            arrival.source == source for arrival in self._claims.values()
        )

    # ------------------------------------------------------------------ the end

    def unreceived(self) -> list[str]:
        """Describe the messages that nobody has received, and whose collectives this rank has not made or finished."""
        arrivals = [(arrival.header, self._names[arrival.source]) for arrival in self.matching.arrivals()]
        return [
            f"{header.length} bytes from rank {source} (tag {header.tag})"
            for header, source in arrivals
            if not header.in_step
        ] + [
            f"what rank {source} has sent for a collective"
            for source in sorted({source for header, source in arrivals if header.in_step})
        ]

    def clear(self) -> list[Message]:
        """Give the group up: forget all receives and messages, and return the requests that have not ended."""
        receives, arrivals = self.matching.clear()
        requests = [*receives, *(arrival.local for arrival in arrivals if arrival.local is not None)]
        requests += [waiting for waiting in self._awaited.values() if not isinstance(waiting, Arrival)]
        requests += [arrival.claimed for arrival in self._claims.values() if arrival.claimed is not None]
        self._awaited.clear()
        self._claims.clear()
        self.adopting, self._given_up = 0, True
        return requests

    # ------------------------------------------------------------------ meetings

    def _meet(self, arrival: Arrival[Message], receive: Message) -> None:
        """Give a message that was kept to a receive."""
        if arrival.data is None:
            self._accept_offer(arrival, receive)
        elif arrival.complete:
            self._hand_over(arrival, receive)
        else:
            arrival.claimed = receive
            self._claims[id(arrival)] = arrival

    def take_in(self, source: int, header: Header, receive: Message) -> Destination:
        """Let a message go straight into the memory of the receive that it has met."""
        misfit = self._misfit(source, header, receive)
        if misfit is not None:
            receive.end(misfit, source)
            self.taken_directly(source, header.length, header.in_step)
            return Destination(None, nothing)

        def whole() -> None:
            receive.nbytes = header.length
            receive.end(None, source)
            self.taken_directly(source, header.length, header.in_step)

        return Destination(receive.buffer[: header.length], whole, receive)

    def _into(self, arrival: Arrival[Message]) -> Destination:
        """Let a message go into memory of this rank's own until a receive comes for it."""

        def whole() -> None:
            arrival.complete = True
            if arrival.claimed is not None:
                self._claims.pop(id(arrival), None)
                self._hand_over(arrival, arrival.claimed)

        assert arrival.data is not None
        return Destination(memoryview(arrival.data), whole)

    def _hand_over(self, arrival: Arrival[Message], receive: Message) -> None:
        header, source, data = arrival.header, arrival.source, arrival.data
        assert data is not None
        misfit = self._misfit(source, header, receive)
        if misfit is None:
            receive.buffer[: header.length] = data
            receive.nbytes = header.length
        receive.end(misfit, source)
        if arrival.local is not None:
            arrival.local.end(misfit)
        elif header.kind == Kind.MESSAGE:
            self._release(source, header)

    def _misfit(self, source: int, header: Header, receive: Message) -> DistBackendError | None:
        """Return the error of a message that does not fit the receive it has met."""
        if not self._dtypes.accepts(receive.dtype, header.dtype):
            have, wanted = self._dtypes.name(header.dtype), self._dtypes.name(receive.dtype)
            return wrong_dtype(have, self._names[source], header.tag, wanted)
        if header.length > len(receive.buffer):
            return too_long(header.length, self._names[source], header.tag, len(receive.buffer))
        return None

    def _release(self, source: int, header: Header) -> None:
        """Let go of the room of a message that was kept, and give credit for it when it is due."""
        due = self._ledgers[source].release(header.length)
        if due:
            self._sender.give_credit(source, due, header.in_step)

    # ------------------------------------------------------------------ offers

    def _accept_offer(self, arrival: Arrival[Message], receive: Message) -> None:
        header, source = arrival.header, arrival.source
        misfit = self._misfit(source, header, receive)
        if misfit is not None:
            receive.end(misfit, source)
            self._refuse(arrival, receive)
        elif not self._sender.fetch(arrival, receive):
            self.ask_for(arrival, receive)

    def _refuse(self, arrival: Arrival[Message], receive: Message) -> None:
        header = arrival.header
        flags = 0 if self._dtypes.accepts(receive.dtype, header.dtype) else UNWANTED
        answer = Header(Kind.REFUSAL, flags, length=len(receive.buffer), ident=header.ident)
        self._sender.reply(arrival.source, answer)

    def ask_for(self, arrival: Arrival[Message], receive: Message) -> None:
        """Ask for the bytes of an offered message."""
        if self._request(arrival):
            self._awaited[arrival.source, arrival.header.ident] = receive
        else:
            self._sender.fail_request(receive, arrival.source)

    def _adopt(self, arrival: Arrival[Message]) -> None:
        if self.closing:
            answer = Header(Kind.REFUSAL, UNWANTED, ident=arrival.header.ident)
            self._sender.reply(arrival.source, answer)
            return
        if self._request(arrival):
            arrival.data = bytearray(arrival.header.length)
            self._awaited[arrival.source, arrival.header.ident] = arrival
            self.adopting += 1

    def _request(self, arrival: Arrival[Message]) -> bool:
        header = Header(Kind.REQUEST, length=arrival.header.length, ident=arrival.header.ident)
        return self._sender.reply(arrival.source, header)
