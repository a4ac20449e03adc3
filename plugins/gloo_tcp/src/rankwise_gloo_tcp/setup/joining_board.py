"""How the ranks of one machine come to share a board: rank 0 makes it and hands it out, and all test what it can do."""

from __future__ import annotations

import os
import socket

import numpy as np

from rankwise.backends import Deadline, processes
from rankwise_gloo_tcp.board import agreement, board, compiled
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.communicator import GlooCommunicator
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
    watched = {peer: processes.watch(card.pid) for peer, card in enumerate(cards) if peer != rank}
    comm.engine.watch_processes({peer: fd for peer, fd in watched.items() if fd >= 0}, shared.parting)
    bells = _open_bells(comm, shared, pids, all(fd >= 0 for fd in watched.values()), deadline)
    try:
        can_read = _probe(comm, shared, pids, deadline)
    except BaseException:
        for bell in bells.values():
            os.close(bell)
        raise
    if can_read:
        shared.may_read(pids)
    for peer in comm.engine.peers.all:
        peer.readable = can_read and peer.rank != rank
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


def _open_bells(
    comm: GlooCommunicator, shared: Board, pids: list[int], watched: bool, deadline: Deadline
) -> dict[int, int]:
    """Return for each peer the descriptor that wakes it; nothing where one cannot be had, or deaths go unnoticed."""
    mine = comm.engine.loop.bell if watched and comm.size <= MAX_RANKS else -1
    found: dict[int, int] = {}
    works = True
    for peer, bell in enumerate(_tell(comm, shared, mine, deadline)):
        works = works and bell >= 0
        if works and peer != comm.rank:
            try:
                found[peer] = os.open(f"/proc/{pids[peer]}/fd/{bell}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                works = False
    if all(_tell(comm, shared, int(works), deadline)):
        return found
    for bell in found.values():
        os.close(bell)
    return {}


def _tell(comm: GlooCommunicator, shared: Board, number: int, deadline: Deadline) -> list[int]:
    """Tell everyone a number, and return everyone's."""
    areas = [area[:8].view(np.int64) for area in shared.areas()[shared.flip()]]
    areas[comm.rank][0] = number
    agreement.timely(shared, comm.context.global_ranks, deadline)
    return [int(area[0]) for area in areas]


def _probe(comm: GlooCommunicator, shared: Board, pids: list[int], deadline: Deadline) -> bool:
    """Tell whether all ranks can read the memory of all others: each reads a random number there."""
    names = comm.context.global_ranks
    number = np.frombuffer(os.urandom(8), np.uint64).copy()
    areas = shared.areas()[shared.flip()]
    areas[comm.rank][:16].view(np.uint64)[:] = number.ctypes.data, number[0]
    agreement.timely(shared, names, deadline)
    found = np.zeros(1, np.uint64)
    works = peer_memory.available()
    for peer, area in enumerate(areas):
        address, expected = area[:16].view(np.uint64)
        if works and peer != comm.rank:
            count = peer_memory.read_at(pids[peer], int(address), found.ctypes.data, 8)
            works = count == 8 and found[0] == expected
    return all(_tell(comm, shared, int(works), deadline))
