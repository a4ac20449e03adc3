"""`send` and `recv` at their shortest; see `rankwise_mpi.collectives.shortest` for why and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from rankwise.backends import MAX_TAG, Array, Caller
from rankwise.errors import DistError
from rankwise_mpi.group.endpoint import Endpoint
from rankwise_mpi.messages.messages import SHORT_MESSAGE, MpiMessages


def shortest_send(endpoint: Endpoint, usual: Callable[..., None]) -> Callable[..., None]:
    """Return a function that does what `usual` does."""
    isend, last_tag, limit = endpoint.mpi.Isend, endpoint.pages.last_tag, endpoint.limit
    looks, byte = endpoint.first_looks, MPI.BYTE

    def send(array: Array, dst: int, tag: int, timeout_s: float) -> None:
        if tag > last_tag or (nbytes := array.nbytes) > limit or endpoint.failure is not None:
            return usual(array, dst, tag, timeout_s)
        request = None
        try:
            request = isend((array, nbytes, byte), dst, tag)
            test = request.Test
            for _ in looks:
                if test():
                    return None
            return endpoint.look_on(f"send(dst={endpoint.context.global_ranks[dst]})", request, array, timeout_s)
        except BaseException as stop:
            endpoint.stopped("send", request, array, stop)

    return send


def shortest_recv(endpoint: Endpoint, messages: MpiMessages, usual: Callable[..., int]) -> Callable[..., int]:
    """Return a function that does what `usual` does."""
    older, new_status, improbe = endpoint.receives.ages, MPI.Status, endpoint.mpi.Improbe
    last_tag, limit, looks, short = endpoint.pages.last_tag, endpoint.limit, endpoint.first_looks, SHORT_MESSAGE
    byte, any_source = MPI.BYTE, MPI.ANY_SOURCE

    def recv(array: Array, src: int | None, tag: int, timeout_s: float) -> int:
        if older or tag > last_tag or (room := array.nbytes) > limit or endpoint.failure is not None:
            return usual(array, src, tag, timeout_s)
        source = any_source if src is None else src
        # Made ready beforehand for a message that is as long as the array, as most are.
        status, buffer = new_status(), (array, room, byte)
        met = request = None
        try:
            for _ in looks:
                if (met := improbe(source, tag, status)) is not None:
                    break
            else:
                met = messages.meet(improbe, source, tag, status, timeout_s)
            if status.count != room:
                messages.take(met, status, array, tag, timeout_s)
            elif room <= short:
                met.Recv(buffer)
            else:
                request = met.Irecv(buffer)
                if not request.Test():  # where one rank reads the other's memory, it has ended already
                    endpoint.look_on("recv", request, array, timeout_s)
        except BaseException as stop:
            messages.stopped_receiving(met, request, array, stop)
        return status.Get_source() if src is None else src

    return recv


def shorten_send(endpoint: Endpoint, send: Callable[..., None], group: Caller) -> Callable[[Any, Any, Any], bool]:
    """Return the shortcut of the public call whose method is `send`."""
    place_of, begin, ended = _places(endpoint), group.trail.begin_message, group.trail.ended
    passed: set[np.dtype[Any]] = set()

    def shortcut(array: Any, dst: Any, tag: Any) -> bool:
        if type(dst) is not int or (to := place_of.get(dst)) is None or not _plain(array, tag) or endpoint.failure:
            return False
        if array.dtype not in passed and not _passes(group, array, "send", passed):
            return False
        ticket = begin("send", array, dst, tag)
        try:
            send(array, to, tag, group.timeout_s)
        except BaseException as error:
            ended(ticket, error)
            raise
        ended(ticket)
        return True

    return shortcut


def shorten_recv(endpoint: Endpoint, recv: Callable[..., int], group: Caller) -> Callable[[Any, Any, Any], int | None]:
    """Return the shortcut of the public call whose method is `recv`."""
    place_of, begin, ended = _places(endpoint), group.trail.begin_message, group.trail.ended
    passed: set[np.dtype[Any]] = set()

    def shortcut(array: Any, src: Any, tag: Any) -> int | None:
        if type(src) is not int or (source := place_of.get(src)) is None or not _plain(array, tag) or endpoint.failure:
            return None
        if not array.flags.carray or (array.dtype not in passed and not _passes(group, array, "recv", passed)):
            return None
        ticket = begin("recv", array, src, tag)
        try:
            recv(array, source, tag, group.timeout_s)
        except BaseException as error:
            ended(ticket, error)
            raise
        ended(ticket)
        return src

    return shortcut


def _places(endpoint: Endpoint) -> dict[int, int]:
    """Return the group rank of each other rank."""
    return {name: rank for rank, name in enumerate(endpoint.context.global_ranks) if rank != endpoint.rank}


def _plain(array: Any, tag: Any) -> bool:
    return type(array) is np.ndarray and array.flags.c_contiguous and type(tag) is int and 0 <= tag <= MAX_TAG


def _passes(group: Caller, array: Any, op: str, passed: set[np.dtype[Any]]) -> bool:
    """Tell whether the capability table takes an array; the slow path raises why not."""
    try:
        group.lane(array, op)
    except (DistError, TypeError, ValueError):
        return False
    passed.add(array.dtype)
    return True
