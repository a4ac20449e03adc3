"""The plainest calls of a group whose ranks share a board, compiled; and what they leave to Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rankwise.backends import (
    MAX_TAG,
    RAW,
    REDUCE_OPS,
    Caller,
    Communicator,
    Deadline,
    IssueOrder,
    ReduceOp,
    Shortcuts,
    mismatch,
)
from rankwise_gloo_tcp.board import agreement
from rankwise_gloo_tcp.board.call import Barrier, BoardCall
from rankwise_gloo_tcp.board.moving import Combine, Move
from rankwise_gloo_tcp.board.reducing import OneShot, TwoShot
from rankwise_gloo_tcp.collectives.shortest import Meeting
from rankwise_gloo_tcp.communicator import GlooCommunicator
from rankwise_gloo_tcp.engine.fast_path import SlowPathHooks
from rankwise_gloo_tcp.engine.peer import Peer
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.protocol.flow import MESSAGE_NBYTES, WINDOW_NBYTES
from rankwise_gloo_tcp.transport.rings import Rings
from rankwise_native._native import Calls, Messages, Trail
from rankwise_native.board import NativeBoard

__all__ = ["shortest"]

#: How C calls them; what is not here is left to Python.
_WAYS = {Barrier: 1, OneShot: 2, TwoShot: 3, Move: 4, Combine: 5}
#: Those that C does not know by their names are left to Python.
_OPS = {name: op for name in REDUCE_OPS if isinstance(op := getattr(ReduceOp, name, None), ReduceOp)}


def shortest(
    comm: Communicator, meeting: Meeting, order: IssueOrder, sequence: Iterator[int], group: Caller
) -> Shortcuts:
    """Return what does the plainest calls; the arguments are those of `rankwise_gloo_tcp.collectives.shortest`."""
    board, prepared, trail = meeting.board, meeting.prepared, group.trail
    if not isinstance(board, NativeBoard) or not isinstance(trail, Trail):
        return Shortcuts()

    def wait(deadline: Deadline | None) -> Deadline:
        """Wait for those who are late, and return the call's deadline."""
        deadline = deadline or Deadline(group.timeout_s)
        try:
            board.await_all(deadline)
        except TimeoutError as error:
            raise agreement.late(board, comm.context.global_ranks, deadline) from error
        return deadline

    def broken(call: BoardCall, number: int, error: BaseException | None, unreadable: bool) -> None:
        """Raise what all ranks raise after a call that has failed, or was not the same on all of them.

        Args:
            call: The call.
            number: Its number.
            error: What a wait has raised.
            unreadable: Whether another rank's memory could not be read any more.
        """
        try:
            if unreadable and isinstance(comm, GlooCommunicator):
                error = comm.unreadable()
            raise error or mismatch(comm, call.fingerprint, number, Deadline(group.timeout_s))
        except BaseException as reason:
            comm.broken_off(call.fingerprint.op, number, reason)
            raise

    def learn(name: str, array: Any, option: Any, numbers: tuple[int, ...]) -> tuple[Any, ...] | None:
        """Return the plan of a call if the general way has prepared it, and so has checked it."""
        call = prepared.barrier.call if name == "barrier" else prepared.calls.get(_key(name, array, option, numbers))
        if call is None:
            return None
        fetch_count = call.route.fetch_count if isinstance(call, Move) else 0
        return (call, _WAYS.get(type(call), 0), *call.about(comm.rank), fetch_count)

    calls = Calls(board, trail, order.turn, comm, order.tell, sequence, group.collected, _OPS, wait, broken, learn)
    names = "all_reduce broadcast all_gather all_gather_single reduce_scatter reduce_scatter_single all_to_all"
    found = {name: getattr(calls, name) for name in (*names.split(), "all_to_all_single", "barrier")}
    found.update(_messages(comm, group) or {})
    return Shortcuts(**found)


def _messages(comm: Communicator, group: Caller) -> dict[str, Any] | None:
    """Return what sends and receives through pipes, if this group has any."""
    if not isinstance(comm, GlooCommunicator) or not comm.engine.peers.pipes:
        return None
    engine, names = comm.engine, comm.context.global_ranks
    dispatcher, progress_lock = engine.dispatcher, engine.progress_lock
    matching = dispatcher.inbox.matching

    def finish(request: Request, verb: str, peer: int) -> None:
        """Wait until a message has been sent or received."""
        comm._finish(request, verb, peer, group.timeout_s)

    def receive(array: Any, source: int, tag: int) -> None:
        """Receive a message for which this has looked in vain."""
        finish(engine.receive(array, source, tag, waited=True), "recv from", source)

    def rings_of(peer: Peer) -> Rings | None:
        return None if peer.connection is None else peer.connection.rings

    ways = [
        (names[peer.rank], peer.card.pid if peer.readable else 0, rings_of(peer), peer.connection, peer, window)
        for peer, window in zip(engine.peers.all, dispatcher.outbox.windows, strict=True)
    ]
    lock, over = engine.lock, SlowPathHooks(engine)
    parts = comm, engine, engine.failure_state, progress_lock, engine.moving.deferred
    known = matching._arrivals, matching._receives, engine.fetching
    doings = dispatcher.dtypes.mark, lock.locked, lock.acquire, lock.release, engine.settle
    offers = over.register_offer, over.offer, dispatcher.outbox.offered, over.ask_for, over.answer
    rest = over.go_on_sending, over.go_on_receiving, finish, receive, over.taken
    sizes = progress_lock.spin_policy.spin_s > 0, MAX_TAG, RAW, WINDOW_NBYTES, MESSAGE_NBYTES
    made = Messages(group.trail, *parts, *known, *doings, *offers, *rest, ways, *sizes)
    return {"send": made.send, "recv": made.recv}


def _key(name: str, array: np.ndarray[Any, Any], option: Any, numbers: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the key under which `Prepared` keeps a call."""
    if name in ("all_reduce", "reduce_scatter"):
        return name, option.name, array.dtype, numbers
    if name == "broadcast":
        return name, option, array.dtype, numbers
    if name == "all_to_all":
        size = len(numbers) // 2
        return name, array.dtype, numbers[:size], numbers[size:]
    return name, array.dtype, numbers
