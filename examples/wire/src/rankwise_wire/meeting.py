"""How the ranks of a group are connected, each with each, by a deadline."""

from __future__ import annotations

import json
import secrets
import socket
import tempfile
import threading
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from rankwise.backends import Context, Store
from rankwise_network import interface
from rankwise_wire.options import Options


def connect_all(context: Context, options: Options) -> dict[int, Connection[Any, Any]]:
    """Return a connection to each other rank.

    Raises:
        DistTimeoutError: Not all have come by the context's time-out.
        DistError: One has died.
    """
    meeting = _Meeting(context, options)
    # Neither `Client` nor `accept` takes a time-out, so another thread waits for them.
    threading.Thread(target=meeting.run, name="wire meeting", daemon=True).start()
    try:
        context.wait(meeting.wait, (peer for peer in range(context.size) if peer not in (context.rank, *meeting.met)))
        if meeting.failure is not None:
            raise meeting.failure
    except BaseException:
        meeting.stop()
        raise
    return meeting.met


class _Meeting:
    def __init__(self, context: Context, options: Options) -> None:
        assert context.store is not None  # only backends with a runtime have none
        self.context, self.options = context, options
        self.store: Store = context.store
        self.met: dict[int, Connection[Any, Any]] = {}
        self.failure: Exception | None = None
        self._over, self._stopped = threading.Event(), False
        self._called: Any = None  # the address of the listener

    def wait(self, seconds: float) -> None:
        """Wait until it is over.

        Raises:
            TimeoutError: It is not, after so many seconds.
        """
        if not self._over.wait(seconds):
            raise TimeoutError

    def stop(self) -> None:
        """Have the thread end, and close what is open: nobody wants the connections any more."""
        self._stopped = True
        if self._called is not None:
            with suppress(OSError), socket.socket(_family(self._called)) as caller:
                caller.connect(self._called)  # `accept` does not notice that its socket is closed
        for connection in list(self.met.values()):
            connection.close()

    def run(self) -> None:
        """Connect to the lower ranks, and be called by the higher ones, which alone are left by then."""
        try:
            with tempfile.TemporaryDirectory(prefix="wire-") as folder:
                self._meet(folder)
        except Exception as error:
            self.failure = error
        self._over.set()

    def _meet(self, folder: str) -> None:
        context, key = self.context, self._key()
        with Listener(self._address(folder), backlog=context.size, authkey=key) as listener:
            self._called = listener.address
            self.store.set(f"address/{context.rank}", json.dumps(listener.address))
            for peer in range(context.rank):
                address = json.loads(context.fetch(f"address/{peer}", peer))
                connection = Client(tuple(address) if isinstance(address, list) else address, authkey=key)
                connection.send_bytes(str(context.rank).encode())
                self._keep(peer, connection)
            while len(self.met) < context.size - 1 and not self._stopped:
                with suppress(AuthenticationError, EOFError, ConnectionError):  # some stranger
                    connection = listener.accept()
                    self._keep(int(connection.recv_bytes(20)), connection)

    def _keep(self, peer: int, connection: Connection[Any, Any]) -> None:
        self.met[peer] = connection
        if self._stopped:
            connection.close()

    def _key(self) -> bytes:
        """Return what only members know, as the store is theirs."""
        if self.context.rank == 0:
            self.store.set("key", secrets.token_bytes(32))
        return self.context.fetch("key", 0)

    def _address(self, folder: str) -> Any:
        if self.options.family == "unix":
            return f"{folder}/socket"
        return interface.outward_address() or "127.0.0.1", 0


def _family(address: Any) -> socket.AddressFamily:
    return socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
