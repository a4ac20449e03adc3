"""The collectives that MPI has, and which of its calls a group makes: after a meeting, or without one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mpi4py import MPI

from rankwise_mpi.group.endpoint import Endpoint

_CALLS = {
    "broadcast": "Bcast",
    "all_reduce": "Allreduce",
    "reduce": "Reduce",
    "all_gather": "Allgatherv",
    "gather": "Gatherv",
    "scatter": "Scatterv",
    "reduce_scatter": "Reduce_scatter",
    "all_to_all": "Alltoallv",
    "barrier": "Barrier",
}
_NEVER = 1 << 62
#: From how many bytes on ranks that share no memory meet, as the blocking call is so much faster; the same on all
#: ranks.
_OPENMPI_MEETS_FROM = {"all_reduce": 1 << 10, "reduce": 1 << 12}


@dataclass(frozen=True, slots=True)
class Native:
    """One collective of MPI.

    Attributes:
        name: Its name in the contract.
        begin: The nonblocking call.
        go: What to call once all ranks have met to make it synchronously: it returns None, or a request to wait for.
        meets_from: From how many bytes on the ranks meet.
    """

    name: str
    begin: Callable[..., MPI.Request]
    go: Callable[..., MPI.Request | None]
    meets_from: int


def natives_of(endpoint: Endpoint, shares_memory: bool) -> Mapping[str, Native]:
    """Return the collectives of a group, by name.

    Args:
        endpoint: This rank's end of the group.
        shares_memory: Whether its ranks meet at an entry barrier.
    """
    # MPICH's blocking calls do not give way to other ranks on the same core.
    blocks = endpoint.is_openmpi or not endpoint.shares_cores
    return {name: _native(endpoint, name, call, shares_memory, blocks) for name, call in _CALLS.items()}


def _native(endpoint: Endpoint, name: str, call: str, shares_memory: bool, blocks: bool) -> Native:
    begin, block = getattr(endpoint.mpi, f"I{call.lower()}"), getattr(endpoint.mpi, call)
    if endpoint.size == 1:
        return Native(name, begin, block, _NEVER)
    if not shares_memory:
        from_nbytes = _OPENMPI_MEETS_FROM.get(name, _NEVER) if endpoint.is_openmpi else _NEVER
        return Native(name, begin, block, from_nbytes)
    if name == "barrier":
        return Native(name, begin, _do_nothing, 0)  # they have met
    return Native(name, begin, block if blocks else begin, 0)


def _do_nothing() -> None:
    """Return."""
