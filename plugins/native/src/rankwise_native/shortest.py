"""The plainest calls of a group whose ranks share a board, compiled; and what they leave to Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rankwise.backends import MAX_TAG, Communicator, Deadline, ReduceOp, mismatch
from rankwise.backends.shortcuts import Caller, Shortcuts
from rankwise.basics.dtypes import RAW
from rankwise.basics.reduce_op import REDUCE_OPS
from rankwise.collective.issue_order import IssueOrder
from rankwise.errors import GroupAbortedError
from rankwise_gloo_tcp.board import agreement
from rankwise_gloo_tcp.board.call import Barrier, Call
from rankwise_gloo_tcp.board.moving import Combine, Move, Unreadable
from rankwise_gloo_tcp.board.reducing import OneShot, TwoShot
from rankwise_gloo_tcp.collectives.shortest import Meeting
from rankwise_gloo_tcp.communicator import GlooCommunicator
from rankwise_gloo_tcp.engine.peer import Peer
from rankwise_gloo_tcp.engine.request import Request
from rankwise_gloo_tcp.engine.taking_over import TakingOver
from rankwise_gloo_tcp.protocol.flow import MESSAGE_NBYTES, WINDOW_NBYTES
from rankwise_gloo_tcp.transport.pipe import Pipe
from rankwise_gloo_tcp.transport.rings import Rings
from rankwise_native._native import Calls, Messages, Trail
from rankwise_native.board import NativeBoard

__all__ = ["shortest"]

#: How C calls them; what is not here is left to Python.
_WAYS = {Barrier: 1, OneShot: 2, TwoShot: 3, Move: 4, Combine: 5}
#: In the order of the C side; `PREMUL_SUM` has a factor, and is none of them.
_OPS = tuple(getattr(ReduceOp, name) for name in REDUCE_OPS if name != "PREMUL_SUM")


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

    def broken(call: Call, number: int, error: BaseException | None) -> None:
        """Raise what all ranks raise after a call that has failed, or was not the same on all of them."""
        if isinstance(error, OSError) and isinstance(comm, GlooCommunicator):
            error = comm.unreadable(Unreadable(str(error)))
        error = error or mismatch(comm, call.fingerprint, number, Deadline(group.timeout_s))
        comm.broken_off(call.fingerprint.op, number, error)
        raise error

    def learn(name: str, array: Any, option: int, numbers: tuple[int, ...]) -> tuple[Any, ...] | None:
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
    mail, matching, seat = engine.mail, engine.mail.inbox.matching, engine.seat

    def finish(request: Request, verb: str, peer: int) -> None:
        """Wait until a message has been sent or received."""
        comm._finish(request, verb, peer, group.timeout_s)

    def receive(array: Any, source: int, tag: int) -> None:
        """Receive a message for which this has looked in vain."""
        finish(engine.receive(array, source, tag, waited=True), "recv from", source)

    def rings_of(peer: Peer) -> Rings | None:
        return peer.connection.rings if isinstance(peer.connection, Pipe) else None

    def break_off(request: Request | None, verb: str, peer: int, error: BaseException) -> None:
        """Give the group up after a message that stays half-way, unless that is done."""
        if request is None or not request.done:
            text = f"{verb} rank {names[peer]} was broken off by {type(error).__name__}"
            comm.fail(GroupAbortedError(text))

    ways = [
        (names[peer.rank], peer.card.pid if peer.readable else 0, rings_of(peer), peer.connection, peer, window)
        for peer, window in zip(engine.peers.all, mail.outbox.windows, strict=True)
    ]
    lock, over = engine.lock, TakingOver(engine)
    parts = comm, engine, engine.fate, seat, engine.moving.deferred
    known = matching._arrivals, matching._receives, engine.fetching
    doings = mail.dtypes.mark, lock.locked, lock.acquire, lock.release, engine.settle
    offers = over.register_offer, over.offer, mail.outbox.offered, over.ask_for, over.answer
    rest = over.go_on_sending, over.go_on_receiving, finish, break_off, receive, over.taken
    sizes = seat.patience.spin_s > 0, MAX_TAG, RAW, WINDOW_NBYTES, MESSAGE_NBYTES
    made = Messages(group.trail, *parts, *known, *doings, *offers, *rest, ways, *sizes)
    return {"send": made.send, "recv": made.recv}


def _key(name: str, array: np.ndarray[Any, Any], option: int, numbers: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the key under which `Prepared` keeps a call."""
    if name == "all_reduce":
        return name, _OPS[option].name, array.dtype, numbers
    if name == "broadcast":
        return name, option, array.dtype, numbers
    if name == "reduce_scatter":
        return name, _OPS[option].name, array.dtype, numbers
    if name == "all_to_all":
        size = len(numbers) // 2
        return name, array.dtype, numbers[:size], numbers[size:]
    return name, array.dtype, numbers
