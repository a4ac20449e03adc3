"""How the ranks of one machine come to share a board: rank 0 makes it, it is handed on, and all test what it can do."""

from __future__ import annotations

import os
import socket

import numpy as np

from rankwise.backends import Deadline
from rankwise_gloo_tcp.board import agreement, board, compiled
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.communicator import GlooCommunicator, behind
from rankwise_gloo_tcp.machine import cores, peer_memory
from rankwise_gloo_tcp.protocol.card import Card
from rankwise_gloo_tcp.setup import handing
from rankwise_gloo_tcp.transport.pipe import Pipe
from rankwise_gloo_tcp.transport.rings import MAX_RANKS, Bell
from rankwise_network import processes


def join(
    comm: GlooCommunicator, cards: list[Card], key: bytes, listener: socket.socket | None, deadline: Deadline
) -> None:
    """Let `comm` use a board.

    Raises:
        DistError: It could not be handed out in time, or to nobody else.
    """
    rank, size = comm.rank, comm.size
    may_spin = cores.together([card.cores for card in cards]) >= size
    if rank == 0:
        descriptor = board.create(size, may_spin)
    else:
        descriptor = handing.fetch(cards[handing.above(rank)].board, rank, size, key, deadline)
    try:
        if listener is not None:
            handing.hand_out(listener, descriptor, key, rank, size, deadline, comm.context.look)
        shared = compiled.make_board(descriptor, rank, size, may_spin, comm.look)
    finally:
        os.close(descriptor)
    comm.start_board(shared)
    pids = [card.pid for card in cards]
    watched = {peer: processes.watch(pids[peer]) for peer in behind(range(size), rank, size)}
    comm.engine.watch_processes({peer: fd for peer, fd in watched.items() if fd >= 0}, shared.parting)
    bells, can_read = _try(comm, shared, pids, all(fd >= 0 for fd in watched.values()), deadline)
    if can_read:
        shared.may_read(pids, comm.all_compiled)
    for peer in comm.engine.peers.all if can_read else ():
        peer.readable = peer.rank != rank
    if bells:
        pipes = [Pipe(comm.engine.dispatcher, peer, shared.rings(peer, bell)) for peer, bell in bells.items()]
        comm.engine.use_pipes(pipes, shared.sleep(), shared.quitters)


def _try(
    comm: GlooCommunicator, shared: Board, pids: list[int], watched: bool, deadline: Deadline
) -> tuple[dict[int, Bell], bool]:
    """Return for each peer what wakes it, and whether all ranks can read the memory of all others.

    There are no bells where some rank can open none, or deaths go unnoticed.
    """
    bell, number = comm.engine.loop.bell, np.frombuffer(os.urandom(8), np.uint64).copy()
    inode = os.fstat(bell).st_ino if watched and comm.size <= MAX_RANKS else 0
    told = _tell(comm, shared, [bell, inode, number.ctypes.data, int(number[0])], deadline)
    bells: dict[int, Bell] = {}
    if all(row[1] for row in told):
        bells = {peer: Bell.of(pids[peer], *told[peer][:2]) for peer in range(comm.size) if peer != comm.rank}
    tried = _tried(comm.rank, comm.size)
    works = bool(bells) and _can_wake(bells, tried), _can_read(tried, pids, told)
    agreed = _tell(comm, shared, [int(each) for each in works], deadline)
    return bells if all(row[0] for row in agreed) else {}, all(row[1] for row in agreed)


def _tried(rank: int, size: int) -> set[int]:
    """Return the few peers on which a rank tries what it can do: at distances 1, 2, 4, ..., from all of them.

    All are of one user and one namespace.
    """
    return {(rank + (1 << step)) % size for step in range((size - 1).bit_length())} - {rank}


def _can_wake(bells: dict[int, Bell], tried: set[int]) -> bool:
    """Tell whether this rank can wake others, and has descriptors for all of them."""
    held: list[int] = []
    try:
        for peer in tried:
            held.append(bells[peer].open())
        while len(held) < len(bells):
            held.append(os.dup(held[0]))
    except OSError:
        return False
    finally:
        for descriptor in held:
            os.close(descriptor)
    return True


def _can_read(tried: set[int], pids: list[int], told: list[list[int]]) -> bool:
    """Tell whether this rank can read the memory of others: each has told where a random number is."""
    found = np.zeros(1, np.uint64)
    return peer_memory.available() and all(
        peer_memory.read_at(pids[peer], told[peer][2], found.ctypes.data, 8) == 8 and int(found[0]) == told[peer][3]
        for peer in tried
    )


def _tell(comm: GlooCommunicator, shared: Board, numbers: list[int], deadline: Deadline) -> list[list[int]]:
    """Tell everyone some numbers, and return everyone's.

    Raises:
        DistTimeoutError: Some have not come; it names them.
    """
    try:
        return shared.tell(numbers, deadline)
    except TimeoutError:
        raise agreement.late(shared, comm.context.global_ranks, deadline) from None
