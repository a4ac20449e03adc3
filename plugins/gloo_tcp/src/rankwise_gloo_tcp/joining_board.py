"""How the ranks of one machine come to share a board: rank 0 makes it and hands it out, and all try what it can do."""

from __future__ import annotations

import os
import secrets
import socket

import numpy as np

from rankwise.deadline import Deadline
from rankwise_gloo_tcp import agreement, board, cores, handing, peer_memory
from rankwise_gloo_tcp.board import Board
from rankwise_gloo_tcp.cards import Card
from rankwise_gloo_tcp.communicator import GlooCommunicator

__all__ = ["join"]


def join(comm: GlooCommunicator, cards: list[Card], key: bytes, listener: socket.socket, deadline: Deadline) -> None:
    """Let `comm` use a board.

    Raises:
        DistError: It could not be handed out in time, or to nobody else.
    """
    rank, size = comm.rank, comm.size
    if rank == 0:
        descriptor = board.create(size)
    else:
        descriptor = handing.fetch(cards[0].board, rank, size, key, deadline)
    try:
        if rank == 0:
            handing.hand_out(listener, descriptor, key, size, deadline)
        may_spin = cores.together([card.cores for card in cards]) >= size
        shared = Board(descriptor, rank, size, may_spin, comm.look)
    finally:
        os.close(descriptor)
    comm.start_board(shared, [card.pid for card in cards])
    watched = {peer: _descriptor(card.pid) for peer, card in enumerate(cards) if peer != rank}
    comm.engine.watch_processes({peer: fd for peer, fd in watched.items() if fd >= 0}, shared.has_left)
    comm.can_read = _probe(comm, shared, deadline)
    for peer in comm.engine.peers:
        peer.readable = comm.can_read and peer.rank != rank


def _descriptor(pid: int) -> int:
    """Return a descriptor that tells of the end of a process, or -1."""
    if pid == os.getpid() or not hasattr(os, "pidfd_open"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def _probe(comm: GlooCommunicator, shared: Board, deadline: Deadline) -> bool:
    """Tell whether all ranks can read the memory of all others: each reads a random number there."""
    names = comm.context.global_ranks
    number = np.frombuffer(secrets.token_bytes(8), np.uint64).copy()
    areas = shared.areas()
    areas[comm.rank][:16].view(np.uint64)[:] = number.ctypes.data, number[0]
    agreement.timely(shared, names, deadline)
    found = np.zeros(1, np.uint64)
    works = peer_memory.available()
    for peer, area in enumerate(areas):
        address, expected = area[:16].view(np.uint64)
        if works and peer != comm.rank:
            count = peer_memory.read_at(comm.pids[peer], int(address), found.ctypes.data, 8)
            works = count == 8 and found[0] == expected
    areas = shared.areas()
    areas[comm.rank][0] = works
    agreement.timely(shared, names, deadline)
    return all(bool(area[0]) for area in areas)
