"""Where the launchers of several nodes meet.

That is a store next to the port at which the ranks do, which node 0 serves, or one on a server that somebody else runs.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from rankwise.errors import DistError, DistTimeoutError
from rankwise.launching import __version__
from rankwise_launch.config import UNNUMBERED, ExitCode, LaunchConfig, LaunchError

if TYPE_CHECKING:
    from rankwise.stores import Store

#: Where node 0 says what it was started with.
CLAIM = "claim"
#: Where it says at which port it serves the store of the ranks.
STORE_OF_RANKS = "store"
#: How long to look who has the port.
_WHO_S = 3.0


def place_of(config: LaunchConfig) -> str:
    """Return where the launchers meet, for messages."""
    if config.meeting:
        from rankwise_stores.serving import without_password

        return without_password(config.meeting)
    return f"{config.master_addr}:{config.master_port_of_nodes}"


def enter(config: LaunchConfig) -> tuple[Store, int]:
    """Open the store; return it and the number of this node, which may be `UNNUMBERED` if it is not 0.

    Raises:
        LaunchError: Nobody serves the store, or it cannot be served, as there is a node 0 already for example.
    """
    from rankwise_stores import TCPStore  # which a job of one node has no need of

    where, number = place_of(config), config.node_rank
    if config.meeting:
        return _at_server(config, where), number
    connect = partial(TCPStore, config.master_addr, config.master_port_of_nodes, timeout=config.join_timeout_s)
    try:
        if number == UNNUMBERED:  # node 0 is the first to come on the machine that has the address
            with suppress(DistError, OSError, ValueError):
                return connect(is_master=True), 0
        return connect(is_master=number == 0), number
    except DistTimeoutError as error:
        raise LaunchError(
            ExitCode.NODE_MISSING,
            f"the launcher of node 0 has not answered at {where} within {config.join_timeout_s:g} s; is it "
            f"running there, with the same job secret, and is the port open?",
        ) from error
    except (DistError, OSError, ValueError) as error:
        if number == 0 and (owner := _other_node_0(config)):
            text = f"another launcher, on {owner}, is node 0 already; check --node-rank"
            raise LaunchError(ExitCode.USAGE, text) from error
        code = ExitCode.PORT_IN_USE if number == 0 else ExitCode.NODE_MISSING
        raise LaunchError(code, f"the launchers cannot meet at {where}: {error}") from error


def _at_server(config: LaunchConfig, where: str) -> Store:
    from rankwise_stores.serving import opened, within

    try:
        return opened(within(config.meeting, "launchers"), config.join_timeout_s)
    except (ValueError, DistError, OSError) as error:
        code = ExitCode.USAGE if isinstance(error, ValueError) else ExitCode.NODE_MISSING
        raise LaunchError(code, f"the launchers cannot meet at {where}: {error}") from error


def _other_node_0(config: LaunchConfig) -> str:
    """Return the host of the launcher that is node 0 already, "" if what has the port is something else."""
    from rankwise_stores import TCPStore

    try:
        with TCPStore(config.master_addr, config.master_port_of_nodes, timeout=_WHO_S) as store:
            return str(json.loads(store.get(CLAIM))["host"])
    except (DistError, OSError, ValueError, LookupError, TypeError):
        return ""


def claim_of(config: LaunchConfig) -> bytes:
    """Return what a launcher says of itself."""
    mine = {"node": config.node_rank, "host": socket.gethostname(), "pid": os.getpid(), "terms": _terms(config)}
    return json.dumps(mine).encode()


def _terms(config: LaunchConfig) -> dict[str, Any]:
    """Return what must be the same on all nodes, by its name."""
    kind = ["-m"] * config.module + ["--no-python"] * config.no_python
    return {
        "the version of rankwise": __version__,
        "--nnodes": config.nnodes if config.min_nodes == config.nnodes else f"{config.min_nodes}:{config.nnodes}",
        "--max-restarts": config.max_restarts,
        "--elastic": "given" if config.elastic else "not given",
        "--min-ranks": config.min_ranks or "not given",
        "the command": shlex.join([*kind, *config.command]),
    }


def difference(claims: Sequence[bytes]) -> str:
    """Say in what a node was started otherwise than node 0, "" if none was."""
    first, *others = map(json.loads, claims)
    for other in others:
        for name, value in first["terms"].items():
            found = other["terms"].get(name)
            if found != value:
                where = f"{value} on {_named(first)} and {found} on {_named(other)}"
                return f"the launchers were started differently: {name} is {where}"
    return ""


def _named(claim: dict[str, Any]) -> str:
    return f"a node on {claim['host']}" if claim["node"] == UNNUMBERED else f"node {claim['node']} ({claim['host']})"
