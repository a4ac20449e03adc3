"""Which strategy serves a group: by where its ranks are, and compiled where that is installed.

This alone knows both the strategies and their compiled ones, which are made of them. A group loads only what it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rankwise.backends import compiled_parts as native
from rankwise_gloo_tcp.board.board import Board
from rankwise_gloo_tcp.collectives.strategy import Strategy

if TYPE_CHECKING:
    from rankwise.backends import Call
    from rankwise_gloo_tcp.collectives.compiled import CallHooks, CompiledHost
    from rankwise_gloo_tcp.collectives.hierarchy import Long
    from rankwise_gloo_tcp.communicator import GlooCommunicator
    from rankwise_native import Calls, Program


def strategy_of(
    comm: GlooCommunicator, hosts: list[list[int]], on_host: Callable[[list[int]], GlooCommunicator]
) -> Strategy:
    """Return what runs the collectives of a group; those that are described in steps too.

    Args:
        comm: The group.
        hosts: The ranks of each host.
        on_host: Makes the group of some of its ranks, which are those of this host.
    """
    if comm.board is not None:
        strategy = _one_host(comm, comm.board)
    elif 1 < len(hosts) < comm.size:
        local = on_host(next(host for host in hosts if comm.rank in host))
        strategy = _compiled_several_hosts(comm, hosts, local) or _several_hosts(comm, hosts, local)
    else:
        strategy = _between_hosts(comm)
    strategy.lower = _in_steps
    return strategy


def _in_steps(strategy: Any, call: Call) -> Long | None:
    from rankwise_gloo_tcp.collectives.hierarchy import Long
    from rankwise_gloo_tcp.collectives.lowering import lowered, pays  # which few groups need

    return Long(strategy.hosts, strategy.means, lowered, (call,)) if pays(strategy.comm, call) else None


def _one_host(comm: GlooCommunicator, board: Board) -> Strategy:
    if native.module() is None:
        from rankwise_gloo_tcp.collectives.one_host import OneHost

        return OneHost(comm, board)
    from rankwise_gloo_tcp.collectives.compiled import CompiledHost

    return CompiledHost(comm, board, _noted)


def _noted(call: Call, strategy: CompiledHost, calls: Calls, hooks: CallHooks) -> Program | None:
    from rankwise_gloo_tcp.collectives.compiled_means import Wires, noted  # which few groups on one host need

    return noted(call, strategy, strategy.comm, calls, Wires(strategy.comm, hooks))


def _between_hosts(comm: GlooCommunicator) -> Strategy:
    from rankwise_gloo_tcp.collectives.opening import FEW_RANKS

    if native.module() is None or not comm.engine.plain or not 1 < comm.size <= FEW_RANKS:
        from rankwise_gloo_tcp.collectives.between_hosts import BetweenHosts

        return BetweenHosts(comm)
    from rankwise_gloo_tcp.collectives.compiled_hosts import CompiledBetweenHosts

    return CompiledBetweenHosts(comm)


def _several_hosts(comm: GlooCommunicator, hosts: list[list[int]], local: GlooCommunicator) -> Strategy:
    from rankwise_gloo_tcp.collectives.several_hosts import SeveralHosts

    return SeveralHosts(comm, hosts, local)


def _compiled_several_hosts(comm: GlooCommunicator, hosts: list[list[int]], local: GlooCommunicator) -> Strategy | None:
    if native.module() is None or not comm.engine.plain:
        return None
    from rankwise_gloo_tcp.collectives.compiled_hosts import CompiledSeveralHosts, is_possible

    return CompiledSeveralHosts(comm, hosts, local) if is_possible(hosts, local) else None
