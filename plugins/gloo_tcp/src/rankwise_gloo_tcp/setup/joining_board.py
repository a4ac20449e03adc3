"""How the ranks of one machine come to share a board: rank 0 makes it and hands it out, and all test what it can do."""

from __future__ import annotations

import contextlib
import os
import socket

import numpy as np

from rankwise.backends import Deadline, processes
from rankwise_gloo_tcp.board import agreement, board, compiled
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.communicator import GlooCommunicator, behind
from rankwise_gloo_tcp.machine import cores, peer_memory
from rankwise_gloo_tcp.protocol.card import Card
from rankwise_gloo_tcp.setup import handing
from rankwise_gloo_tcp.transport.pipe import Pipe
from rankwise_gloo_tcp.transport.rings import MAX_RANKS, make_rings

__all__ = ["join"]


def join(comm: GlooCommunicator, cards: list[Card], key: bytes, listener: socket.socket, deadline: Deadline) -> None:
    """Let `comm` use a board.

    Raises:
        DistError: It could not be handed out in time, or to nobody else.
    """
    rank, size = comm.rank, comm.size
    may_spin = cores.together([card.cores for card in cards]) >= size
    if rank == 0:
        descriptor = board.create(size, may_spin)
    else:
        descriptor = handing.fetch(cards[0].board, rank, size, key, deadline)
    try:
        if rank == 0:
            handing.hand_out(listener, descriptor, key, size, deadline, comm.context.look)
        shared = compiled.make_board(descriptor, rank, size, may_spin, comm.look)
    finally:
        os.close(descriptor)
    comm.start_board(shared)
    pids = [card.pid for card in cards]
    watched = {peer: processes.watch(pids[peer]) for peer in behind(range(size), rank, size)}
    comm.engine.watch_processes({peer: fd for peer, fd in watched.items() if fd >= 0}, shared.parting)
    bells, can_read = _try(comm, shared, pids, all(fd >= 0 for fd in watched.values()), deadline)
    if can_read:
        shared.may_read(pids)
    for peer in comm.engine.peers.all if can_read else ():
        peer.readable = peer.rank != rank
    if bells:
        pipes = [_pipe(comm, shared, peer, bell) for peer, bell in bells.items()]
        comm.engine.use_pipes(pipes, shared.sleep(rank, -1), shared.quitters)


def _pipe(comm: GlooCommunicator, shared: Board, peer: int, bell: int) -> Pipe:
    sleep = shared.sleep(peer, bell)
    return Pipe(
        comm.engine.dispatcher,
        peer,
        make_rings(shared.ring(comm.rank, peer), shared.ring(peer, comm.rank), sleep),
        sleep,
    )


def _try(
    comm: GlooCommunicator, shared: Board, pids: list[int], watched: bool, deadline: Deadline
) -> tuple[dict[int, int], bool]:
    """Return for each peer the descriptor that wakes it, and whether all ranks can read the memory of all others.

    There are no descriptors where some rank can open none, or deaths go unnoticed.
    """
    mine = comm.engine.loop.bell if watched and comm.size <= MAX_RANKS else -1
    number = np.frombuffer(os.urandom(8), np.int64).copy()
    told = _tell(comm, shared, [mine, number.ctypes.data, int(number[0])], deadline)
    bells = _open_bells(comm.rank, pids, [bell for bell, _, _ in told])
    works = len(bells) == comm.size - 1, _can_read(comm.rank, pids, told)
    try:
        agreed = _tell(comm, shared, [int(each) for each in works], deadline)
    except BaseException:
        _close(bells)
        raise
    if not all(row[0] for row in agreed):
        _close(bells)
    return bells, all(row[1] for row in agreed)


def _open_bells(rank: int, pids: list[int], told: list[int]) -> dict[int, int]:
    """Return for each peer the descriptor that wakes it, up to the first that cannot be had; none if one has none."""
    found: dict[int, int] = {}
    if min(told) >= 0:
        with contextlib.suppress(OSError):
            for peer, bell in enumerate(told):
                if peer != rank:
                    path = f"/proc/{pids[peer]}/fd/{bell}"
                    found[peer] = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return found


def _close(bells: dict[int, int]) -> None:
    while bells:
        os.close(bells.popitem()[1])


def _can_read(rank: int, pids: list[int], told: list[list[int]]) -> bool:
    """Tell whether this rank can read the memory of others: each has told where a random number is.

    All are of one user and one namespace, so that it is tried on a few: at distances 1, 2, 4, ..., from all of them.
    """
    found, size = np.zeros(1, np.int64), len(pids)
    tried = {(rank + (1 << step)) % size for step in range((size - 1).bit_length())} - {rank}
    return peer_memory.available() and all(
        peer_memory.read_at(pids[peer], told[peer][1], found.ctypes.data, 8) == 8 and int(found[0]) == told[peer][2]
        for peer in tried
    )


def _tell(comm: GlooCommunicator, shared: Board, numbers: list[int], deadline: Deadline) -> list[list[int]]:
    """Tell everyone some numbers, and return everyone's."""
    rows = shared.told(shared.flip(), len(numbers))
    rows[comm.rank] = numbers
    agreement.timely(shared, comm.context.global_ranks, deadline)
    found: list[list[int]] = rows.tolist()
    return found
