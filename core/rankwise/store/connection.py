"""A client's connection to the server of a `TCPStore`, for one request at a time."""

from __future__ import annotations

import itertools
from typing import Any

from rankwise.deadline import Deadline
from rankwise.errors import DistNetworkError, DistTimeoutError, ProtocolError
from rankwise.store import wire

__all__ = ["Connection"]


class Connection:
    """One socket, with a monitor that tells how far it has come and when it breaks."""

    def __init__(self, context: Any, where: str, store: str) -> None:
        import zmq

        self._store = store
        self._numbers = itertools.count(1)
        self._socket = context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.ipv6 = "[" in where
        self._socket.maxmsgsize = wire.MAX_MESSAGE
        self._socket.sndhwm = self._socket.rcvhwm = 0
        # Until the server is up, try again often: ranks start at about the same time.
        self._socket.reconnect_ivl, self._socket.reconnect_ivl_max = 5, 200
        self._guarded = where.startswith("tcp") and wire.client_security(self._socket)
        self._events = self._socket.get_monitor_socket() if where.startswith("tcp") else None
        self._listening = self._established = False
        self._socket.connect(where)

    def ask(self, op: str, args: tuple[Any, ...], wait_s: float, deadline: Deadline) -> tuple[str, Any]:
        """Send a request and return status and value of its answer.

        Raises:
            DistTimeoutError: There is none by the deadline; the message says how far the connection came.
            DistNetworkError: The connection broke.
            ProtocolError: What answers is not a store.
        """
        number = next(self._numbers)
        self._socket.send(wire.pack(number, op, args, wait_s))
        while True:
            answered, status, value = wire.read_answer(self._receive(deadline))
            if answered == 0:
                raise ProtocolError(f"{self._store} does not understand: {value}")
            if answered == number:
                return status, value

    def close(self) -> None:
        """Give the socket back."""
        if self._events is not None:
            self._socket.disable_monitor()
            self._events.close(linger=0)
        self._socket.close(linger=0)

    def _receive(self, deadline: Deadline) -> bytes:
        import zmq

        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        if self._events is not None:
            poller.register(self._events, zmq.POLLIN)
        while True:
            try:
                ready = dict(poller.poll(1000 * deadline.remaining()))
            except zmq.ContextTerminated as error:
                raise DistNetworkError(f"{self._store} was closed by another thread") from error
            if self._socket in ready:
                data: bytes = self._socket.recv()
                return data
            if self._events in ready:
                self._note_event()
            elif deadline.expired():
                raise DistTimeoutError(self._how_far(deadline.timeout_s))

    def _note_event(self) -> None:
        import zmq
        from zmq.utils.monitor import recv_monitor_message

        event = recv_monitor_message(self._events)["event"]
        if event == zmq.EVENT_CONNECTED:
            self._listening = True
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._established = True
        elif event == zmq.EVENT_DISCONNECTED and self._established:
            raise DistNetworkError(f"{self._store}: the process that serves it is gone")

    def _how_far(self, timeout_s: float) -> str:
        if self._events is None or self._established:
            return f"{self._store} is connected but did not answer within {timeout_s:g} s"
        if not self._listening:
            return f"{self._store}: nothing listens there, or it cannot be reached, after {timeout_s:g} s"
        guard = "another secret or none" if self._guarded else "a secret, which this process has not"
        return f"{self._store}: what listens there does not answer as a store after {timeout_s:g} s, or it has {guard}"
