"""The communicator: point-to-point calls straight from the engine, collectives by the strategy that suits the group."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rankwise.backends import (
    Array,
    Call,
    Caller,
    Communicator,
    Context,
    Deadline,
    Gauges,
    Landing,
    Prepared,
    Shortcuts,
    Status,
    Trail,
    Work,
    anew,
    last_words,
    to_device,
    to_host,
)
from rankwise.errors import DistError, DistTimeoutError, PeerDiedError
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.collectives.selection import Selection
from rankwise_gloo_tcp.collectives.strategy import ARGUMENTS, Strategy
from rankwise_gloo_tcp.engine.engine import Engine
from rankwise_gloo_tcp.engine.fast_path import FastPath
from rankwise_gloo_tcp.protocol.frames import notice, parted, read_notice
from rankwise_gloo_tcp.transport.rings import MAX_RANKS

if TYPE_CHECKING:
    from rankwise_gloo_tcp.collectives.streams import Subset

#: How long what a process has sent may hold up its end.
_HASTE_S = 1.0
#: After how many ranks each one looks that waits at the board of a large group.
_BEHIND = 8


def behind(ranks: Sequence[int], rank: int, size: int) -> Sequence[int]:
    """Return those of some ranks, in order, whom a rank looks after: all others, or in a large group the next few.

    So each of them is looked after by those before it. Who is waited for alone is looked after by all.
    """
    if size <= MAX_RANKS:
        return [peer for peer in ranks if peer != rank]
    at = bisect(ranks, rank)
    around = (*ranks[at : at + _BEHIND], *ranks[: min(at, _BEHIND + 1)])
    return [peer for peer in around if peer != rank][:_BEHIND]


class GlooCommunicator(Communicator):
    """One live group.

    Attributes:
        engine: What carries its messages.
        board: The memory that all its ranks share, if they are on one host.
        strategy: What runs its collectives.
        selection: Which algorithms it was told to use.
        all_compiled: Whether all its ranks have the compiled parts.
        spread: Returns what carries long data among some ranks over several connections a pair, if there are several.
    """

    engine: Engine
    strategy: Strategy
    tells_waits = True

    def __init__(self, context: Context, selection: Selection | None = None) -> None:
        super().__init__(context)
        self.board: Board | None = None
        self.selection = selection or Selection({})
        self.all_compiled = False
        self.spread: Callable[[Sequence[int]], Subset] | None = None

    def start(self, engine: Engine) -> None:
        """Begin to use an engine, which this communicator closes."""
        self.engine, fast_path = engine, FastPath(engine)
        self._fast_send, self._fast_receive = fast_path.send, fast_path.receive
        engine.progress_lock.in_background = self.order.serves_here

    def start_board(self, board: Board) -> None:
        """Begin to use a board, which this communicator closes."""
        me = self.context.global_ranks[self.rank]
        self.board = board
        self.engine.on_abort = lambda error: board.give_up(notice(error, me))
        self.engine.on_news = self._stir

    def use(self, strategy: Strategy) -> None:
        """Run collectives by this strategy from now on."""
        self.strategy = strategy

    def new_kind(self, call: Call) -> Prepared | None:
        """Return what does all calls of a kind."""
        return self.strategy.prepare(call)

    def forget(self) -> None:
        """Forget what was kept for calls."""
        super().forget()
        if "strategy" in self.__dict__:
            self.strategy.forget()

    def algorithm(self, call: Call) -> Any:
        """Return which way a collective goes."""
        return self.strategy.algorithm(call)

    def own_collectives(self) -> Collection[str]:
        """Return those that have a way of their own, whatever the group."""
        return ARGUMENTS

    def compare_and_run(self, call: Call, algorithm: Any, sequence: int, deadline: Deadline) -> None:
        """Compare the calls of all ranks in the way that suits the group, and run the collective."""
        self.strategy.compare_and_run(call, algorithm, sequence, deadline)
        self.engine.end_collective()

    def shortcuts(self, group: Caller) -> Shortcuts:
        """Return the fast path of plain calls, where the strategy of this group has one."""
        return self.strategy.shortcuts(group)

    # ------------------------------------------------------------------ messages

    def isend(self, array: Array, dst: int, tag: int) -> Work:
        """Begin to send; an array of a device as a copy on the host."""
        if type(array) is not np.ndarray:
            array = to_host(array)
        return self.engine.send(array, dst, tag)

    def irecv(self, array: Array, src: int | None, tag: int) -> Work:
        """Begin to receive; into an array of a device by way of the host."""
        if type(array) is not np.ndarray:
            return Landing(array, lambda host: self.engine.receive(host, src, tag))
        return self.engine.receive(array, src, tag)

    def send(self, array: Array, dst: int, tag: int, timeout_s: float) -> None:
        """Send, on the caller's own thread."""
        if type(array) is not np.ndarray:
            array = to_host(array)
        sent = self._fast_send(array, dst, tag)
        if sent is not True:
            self._finish(sent or self.engine.send(array, dst, tag, waited=True), "send to", dst, timeout_s)

    def recv(self, array: Array, src: int | None, tag: int, timeout_s: float) -> int:
        """Receive on the caller's own thread, and return the sender's group rank."""
        if type(array) is not np.ndarray:
            host = to_host(array)
            source = self.recv(host, src, tag, timeout_s)
            to_device(array, host)
            return source
        if src is not None and self._fast_receive(array, src, tag):
            return src
        request = self.engine.receive(array, src, tag, waited=True)
        self._finish(request, "recv from", src, timeout_s)
        return request.source_rank()

    def iprobe(self, src: int | None, tag: int) -> Status | None:
        """Return what the message is that a receive would meet now."""
        return self.engine.probe(src, tag)

    def timed_out(self, text: str, waited_for: Sequence[int] = ()) -> DistTimeoutError:
        """Say also over which connections to these ranks nothing comes."""
        error = super().timed_out(text, waited_for)
        troubles = self.engine.troubles(waited_for)
        if troubles:
            error = DistTimeoutError("; ".join((str(error), *troubles)))
            error.waited_for = tuple(waited_for)
        return error

    # ------------------------------------------------------------------ for those who look

    def note_to(self, trail: Trail) -> None:
        """Have waits and failures noted."""
        super().note_to(trail)
        self.engine.progress_lock.on_wait = trail.waited
        if self.strategy.local is not None:
            self.strategy.local.note_to(trail)

    def gauges(self) -> Gauges:
        """Tell how much has moved on which way, and what waits."""
        local, board = self.strategy.local, self.board
        here = Gauges() if local is None else local.gauges()
        moved = Counter(self.engine.moved_nbytes()) + Counter(here.moved_nbytes)
        queued = Counter({"collectives": self.order.length(), **self.engine.queued()}) + Counter(here.queued)
        way = "board" if board is not None else "+".join(filter(None, (here.way, next(iter(moved), ""))))
        return Gauges(moved, queued, way, here.memory_nbytes + (0 if board is None else board.nbytes))

    # ------------------------------------------------------------------ while others are waited for

    def look(self) -> None:
        """Take in news while waiting at the board.

        Raises:
            DistError: The group has failed.
        """
        if not self.engine.is_tended():
            self.engine.look()
        board = self.board
        if board is not None and self.failure is None:
            said = board.given_up()
            if said is not None and not isinstance(error := read_notice(said[1]), PeerDiedError):
                self.fail(error)
            late: Sequence[int] = board.late()
            if board.size > MAX_RANKS:
                late = behind(late, board.rank, board.size)
                self.engine.attend(late)
            for peer in late:
                gone = self._why_gone(peer, board)
                # It may have come, done its part and left since it was found late: so its turn is read last.
                if gone is not None and peer in board.late():
                    self.fail(gone)
        if self.failure is not None:
            raise anew(self.failure)

    def _stir(self) -> None:
        """Have who waits at the board look, once the group has failed or somebody has died."""
        board = self.board
        if board is not None and (self.failure is not None or self.engine.peers.any_gone()):
            board.stir()

    def _why_gone(self, peer: int, board: Board) -> DistError | None:
        """Return why a rank comes to the board no more, or None if it may."""
        known = self.engine.peers[peer]
        if known.dead is not None:
            return known.dead
        if board.has_given_up(peer) and (said := board.given_up()):
            return read_notice(said[1])
        parting = board.parting(peer)
        if parting is not None:
            return PeerDiedError(self.context.global_ranks[peer], known.card.host, parted(*parting))
        return None

    def peer_died(self, rank: int, error: DistError) -> bool:
        """Fail what needs a rank whose process has ended, now or later; the rest goes on."""
        self.engine.peer_died(rank, error)
        return True

    # ------------------------------------------------------------------ the end

    def process_ends(self, error: DistError) -> None:
        """Let the process end: deliver what was sent, in haste; give up only if something is pending."""
        self.engine.dispatcher.process_ends, self.engine.dispatcher.last_words = True, last_words()
        if self.is_busy() or self.engine.is_awaited():
            super().process_ends(error)
        else:
            self.engine.timeout_s = _HASTE_S

    def close(self) -> None:
        """Deliver what was sent, tell the peers that this rank leaves, and give everything back."""
        try:
            if "strategy" in self.__dict__:  # else it was never finished
                self.strategy.close()
        finally:
            self._close_engine()

    def _close_engine(self) -> None:
        if self.board is not None and self.failure is None:
            dispatcher = self.engine.dispatcher
            self.board.leave(dispatcher.process_ends, dispatcher.last_words)
        try:
            self.engine.close()
        finally:
            board, self.board, self.engine.on_abort = self.board, None, None
            self.__dict__.pop("strategy", None)  # they hold this, and memory that is given back
            if board is not None:
                board.close()

    def abort(self, error: DistError) -> None:
        """End what is pending here, and tell the peers why."""
        self.engine.abort(error)
        if "strategy" in self.__dict__:
            self.strategy.give_up(error)
