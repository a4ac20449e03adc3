"""Making the communicator of one group: every rank says where it listens, and learns where the others do."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from rankwise.backends import Context, Deadline, PrefixStore, loading
from rankwise.backends import debug_log as tell
from rankwise.errors import DistNetworkError, RendezvousError
from rankwise_gloo_tcp.board import board
from rankwise_gloo_tcp.collectives import selection
from rankwise_gloo_tcp.collectives.choosing import strategy_of
from rankwise_gloo_tcp.communicator import GlooCommunicator
from rankwise_gloo_tcp.engine.config import EngineConfig
from rankwise_gloo_tcp.engine.engine import Engine
from rankwise_gloo_tcp.machine import cores
from rankwise_gloo_tcp.protocol.card import Card
from rankwise_gloo_tcp.setup import cards, handing, joining_board, privacy, transports
from rankwise_gloo_tcp.setup.transports import CONNECTIONS, INTEGRITY, TRANSPORTS, VARIABLE
from rankwise_network import doors, secret

if TYPE_CHECKING:
    from rankwise_gloo_tcp.transport.encrypted import Encryption

#: How long a wait polls before it sleeps, where there is a processor for each rank.
_SPIN_S = 400e-6
#: In place of a socket's name on the card of a rank that hands the board to nobody.
_TAKES = "y"
#: More descriptors than an engine and a board open before the first call.
_DESCRIPTORS = 32


def create(context: Context) -> GlooCommunicator:
    """Make the communicator of one group.

    Raises:
        ValueError: `RANKWISE_GLOO_TRANSPORT`, `RANKWISE_GLOO_INTEGRITY`, `RANKWISE_GLOO_CONNECTIONS` or the name of an
            interface is wrong.
        RendezvousError: The ranks do not use the same transport, protection or number of connections, or cannot.
        DistNetworkError: A rank is on another machine and there is no job secret.
    """
    chosen = selection.load(context.options_as(dict))
    if context.size == 1 or context.store is None:
        return _alone(context)
    deadline = Deadline(context.timeout_s)
    key = secret.given_or_loaded(context.secret, "gloo")
    private = privacy.prepare(transports.integrity())
    proves = key is not None or (private is not None and private.certificate == privacy.BY_FILES)
    transport = transports.chosen()
    listeners: list[tuple[socket.socket, bool]] = []
    board_listener: socket.socket | None = None
    try:
        card = transports.listen(context, transport, proves, listeners, deadline)
        board_name = _board_name(context.rank, context.size, card)
        if len(board_name) > len(_TAKES):
            board_listener = doors.open_at(board_name)
        card = card._replace(
            algorithms=str(chosen),
            board=board_name,
            certificate=private.certificate if private else "",
        )
        all_cards, token = cards.exchange(context, context.store, card, deadline)
        doors.await_free(_DESCRIPTORS, deadline)
        _check(context, all_cards, transport)
        places = cards.places(all_cards)
        comm = GlooCommunicator(context, chosen)
        group_key = secret.derive(key or token, f"gloo group {context.name} {token.hex()}")
        encryption = privacy.encryption(private, all_cards, context.global_ranks, context.name)
        near = "unix" in TRANSPORTS[transport]
        # Nobody asks for the rest later.
        kept = [card._replace(token="", board="") if len(card.board) > len(_TAKES) else card for card in all_cards]
        count = card.connections if len(places) > 1 else 1
        engine = _engine(comm, kept, group_key, key is not None, near, encryption, count)
        for sock, near in listeners:
            engine.listen(sock, near)
        listeners.clear()  # they are the engine's now
        comm.start(engine)
        comm.all_compiled = all(card.compiled for card in all_cards)
        if count > 1:
            from rankwise_gloo_tcp.collectives.streams import Spread

            comm.spread = partial(Spread, engine, count, context)
        try:
            if all(card.board and card.shares_processes(all_cards[0]) for card in all_cards):
                joining_board.join(comm, all_cards, group_key, board_listener, deadline)
            if not engine.peers.all_in_memory:
                _load_connections()
            comm.use(strategy_of(comm, places, partial(_on_host, comm.context)))
            tell(lambda: _chosen(comm, all_cards, places))
        except BaseException:
            engine.close()
            raise
    except BaseException:
        for sock, _ in listeners:
            sock.close()
        raise
    finally:
        if board_listener is not None:
            board_listener.close()
    return comm


def _load_connections() -> None:
    """Load what connections are made of, which ranks that share memory never need, while the others are waited for."""
    with loading():
        import_module("rankwise_gloo_tcp.transport.connecting")
        import_module("rankwise_gloo_tcp.transport.connection")


def _alone(context: Context) -> GlooCommunicator:
    comm = GlooCommunicator(context)
    comm.start(_engine(comm, [], b"", False, False))
    comm.use(strategy_of(comm, [[0]], partial(_on_host, context)))
    return comm


def _chosen(comm: GlooCommunicator, all_cards: list[Card], places: list[list[int]]) -> str:
    """Say which way this rank's messages and collectives go, and why."""
    me, peers = all_cards[comm.rank], comm.engine.peers
    several = f" by up to {me.connections} connections each" if comm.spread is not None else ""
    peers_by = {
        "shared memory": [pipe.peer for pipe in peers.pipes],
        "Unix sockets": [peer.rank for peer in peers.all[: comm.size] if peer.near and peer.connection is None],
        f"TCP from {me.address}:{me.port}{several}": [peer.rank for peer in peers.all[: comm.size] if not peer.near],
    }
    names = comm.context.global_ranks
    told = [
        f"{way} to rank{'s' * (len(to) > 1)} {', '.join(str(names[peer]) for peer in to)}"
        for way, ranks in peers_by.items()
        if (to := [rank for rank in ranks if rank != comm.rank])
    ]
    kind = "one host" if comm.board is not None else f"{len(places)} places"
    algorithms = str(comm.selection) or "by the tables"
    return (
        f"gloo group {comm.context.name!r}, rank {names[comm.rank]}: {'; '.join(told) or 'nobody else'}; "
        f"collectives of {kind}, algorithms {algorithms} ({VARIABLE}={me.transport})"
    )


def _on_host(context: Context, ranks: list[int]) -> GlooCommunicator:
    """Make the group of one host's ranks within a group."""
    assert context.store is not None  # else there are no hosts to tell apart
    first = context.global_ranks[ranks[0]]
    return create(
        replace(
            context,
            name=f"{context.name}/host of rank {first}",
            rank=ranks.index(context.rank),
            size=len(ranks),
            global_ranks=tuple(context.global_ranks[rank] for rank in ranks),
            store=PrefixStore(f"host/{first}", context.store),
            parent=None,
        )
    )


def _engine(
    comm: GlooCommunicator,
    all_cards: list[Card],
    key: bytes,
    guarded: bool,
    near: bool,
    encryption: Encryption | None = None,
    count: int = 1,
) -> Engine:
    context = comm.context
    names, rank = context.global_ranks * count, context.rank
    peers = key, guarded, names, context.timeout_s, comm.fail, near, encryption, count
    engine = Engine(EngineConfig(rank, all_cards * count, *peers))
    here = [card.cores for card in all_cards if card.machine == all_cards[rank].machine]
    if all_cards and cores.together(here) >= len(here):
        engine.progress_lock.spin_policy.spin_s = _SPIN_S
    return engine


def _board_name(rank: int, size: int, card: Card) -> str:
    """Return the name of the socket where a rank hands out the board, if it does; nothing if it can use none."""
    if not card.unix or not board.available():
        return ""
    if not handing.below(rank, size):
        return _TAKES
    return f"rankwise-{os.urandom(16).hex()}"


def _files(card: Card) -> str:
    return "TCP_TLS" if card.certificate == privacy.BY_FILES else "TCP"


def _check(context: Context, all_cards: list[Card], transport: str) -> None:
    names, me = context.global_ranks, all_cards[context.rank]
    for variable, values in (
        (VARIABLE, {card.transport for card in all_cards}),
        (INTEGRITY, {card.integrity for card in all_cards}),
        (CONNECTIONS, {str(card.connections) for card in all_cards}),
        ("GLOO_DEVICE_TRANSPORT", {_files(card) for card in all_cards}),
    ):
        if len(values) > 1:
            differ = " and to ".join(sorted(values))
            raise RendezvousError(f"group {context.name!r}: the ranks have {variable} set to {differ}")
    told = sorted({card.algorithms or "none" for card in all_cards})
    if len(told) > 1:
        raise RendezvousError(f"group {context.name!r}: the ranks are told different algorithms: {' and '.join(told)}")
    for peer, card in enumerate(all_cards):
        if peer == context.rank or ("unix" in TRANSPORTS[transport] and me.is_near(card)):
            continue
        where = f"rank {names[peer]} on {card.host} cannot be reached from rank {names[context.rank]} on {me.host}"
        if "tcp" not in TRANSPORTS[transport]:
            raise RendezvousError(f"group {context.name!r}: {where} by shared memory, and {VARIABLE}={transport}")
        if not card.address or not me.address:
            raise DistNetworkError(f"group {context.name!r}: {where}: {secret.ADVICE}")
