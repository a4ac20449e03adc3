"""How the ranks of a group are connected, each with each, by a deadline."""

from __future__ import annotations

import json
import secrets
import tempfile
import threading
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from rankwise.backends import Context, Deadline, Store
from rankwise.errors import DistTimeoutError
from rankwise_network import interface
from rankwise_wire.options import Options

#: How often a rank looks whether one that it waits for has died meanwhile.
_LOOK_S = 0.1


def connect_all(context: Context, options: Options) -> dict[int, Connection[Any, Any]]:
    """Return a connection to each other rank.

    Raises:
        DistTimeoutError: Not all have come by the context's time-out.
        DistError: One has died.
    """
    meeting, deadline = _Meeting(context, options), Deadline(context.timeout_s)
    # Neither `Client` nor `accept` takes a time-out, so another thread waits for them.
    threading.Thread(target=meeting.run, name="wire meeting", daemon=True).start()
    while not meeting.over.wait(min(_LOOK_S, deadline.remaining())):
        context.look()
        if deadline.expired():
            missing = tuple(context.global_ranks[peer] for peer in range(context.size) if peer not in meeting.met)
            error = DistTimeoutError(f"not all ranks of {context.name!r} were connected: missing {missing}")
            error.waited_for = missing
            raise error
    if meeting.failure is not None:
        raise meeting.failure
    del meeting.met[context.rank]
    return meeting.met


class _Meeting:
    def __init__(self, context: Context, options: Options) -> None:
        assert context.store is not None  # only backends with a runtime have none
        self.context, self.options = context, options
        self.store: Store = context.store
        self.met: dict[int, Any] = {context.rank: None}
        self.failure: Exception | None = None
        self.over = threading.Event()

    def run(self) -> None:
        """Connect to the lower ranks, and be called by the higher ones, which alone are left by then."""
        try:
            with tempfile.TemporaryDirectory(prefix="wire-") as folder:
                self._meet(folder)
        except Exception as error:
            self.failure = error
        self.over.set()

    def _meet(self, folder: str) -> None:
        rank, size, key = self.context.rank, self.context.size, self._key()
        with Listener(self._address(folder), backlog=size, authkey=key) as listener:
            self.store.set(f"address/{rank}", json.dumps(listener.address))
            for peer in range(rank):
                address = json.loads(self.store.get(f"address/{peer}"))
                connection = Client(tuple(address) if isinstance(address, list) else address, authkey=key)
                connection.send_bytes(str(rank).encode())
                self.met[peer] = connection
            while len(self.met) < size:
                with suppress(AuthenticationError, EOFError, ConnectionError):  # some stranger
                    connection = listener.accept()
                    self.met[int(connection.recv_bytes(20))] = connection

    def _key(self) -> bytes:
        """Return what only members know, as the store is theirs."""
        if self.context.rank == 0:
            self.store.set("key", secrets.token_bytes(32))
        return self.store.get("key")

    def _address(self, folder: str) -> Any:
        if self.options.family == "unix":
            return f"{folder}/socket"
        return interface.outward_address() or "127.0.0.1", 0
