"""`TCPStore`: a store that one process serves to the others over the network."""

from __future__ import annotations

import operator
import os
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rankwise.errors import DistStoreError, DistTimeoutError, ForkedProcessError
from rankwise.stores import (
    DEFAULT_TIMEOUT_S,
    GRACE_S,
    RESERVED,
    Deadline,
    Missing,
    Operation,
    TableStore,
    Timeout,
    held,
    is_integer,
    keep_standard,
    late,
    loading,
    operations,
    shortened,
    shown,
    to_key,
    to_value,
)
from rankwise_network.secret import given_or_loaded
from rankwise_stores.tcp import wire
from rankwise_stores.tcp.wills import set_with_will

if TYPE_CHECKING:
    from rankwise_stores.tcp.pool import Pool

_R = TypeVar("_R")
_P = ParamSpec("_P")

_WORKERS = f"{RESERVED}workers"


class TCPStore(TableStore):
    """A store that lives in one process, the master, and that the others reach over TCP.

    With a job secret, only processes that know it get in, and all is encrypted. Without one, the store is for processes
    of one machine: it is served at loopback addresses only. It is bound to the one address that was asked for.

    It ends with the process that serves it; the others' calls then fail immediately.

    Args:
        host_name: The master's host, by name or address.
        port: The port; 0 lets the master take a free one, which `port` then tells.
        world_size: How many will use the store, the master included; None if that is not known.
        is_master: Whether this process serves the store.
        timeout: How long to wait for the server, and, from then on, for keys: a `timedelta` or seconds.
        wait_for_workers: Have the master wait until `world_size` users have come.
        secret: The job secret, if it is not the one of the environment; groups that meet in the store have it too.
        wait_for_server: Wait for a server that is yet to be started; else it is an error if none is there.

    Raises:
        ValueError: The arguments make no sense.
        DistNetworkError: The port is taken, the name unknown, the network reachable without a secret, or something else
            than this store is there.
        DistTimeoutError: There was no server, or not enough workers, within the time-out.

    Examples:
        >>> with dist.TCPStore("127.0.0.1", is_master=True) as store:
        ...     user = dist.TCPStore("127.0.0.1", store.port)
        ...     user.set("key", "value")
        ...     user.close()
        ...     print(store.get("key"))
        b'value'
    """

    has_address = True

    def __init__(
        self,
        host_name: str,
        port: int = 0,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: Timeout = DEFAULT_TIMEOUT_S,
        wait_for_workers: bool = True,
        *,
        secret: bytes | None = None,
        wait_for_server: bool = True,
    ) -> None:
        with shortened, held:
            keep_standard()
            self.set_timeout(timeout)
            _load()
            deadline = Deadline(self._timeout_s)
            self._host, self._port = _check_address(host_name, port, is_master)
            self._is_master = is_master
            self._pid = os.getpid()
            self.secret = given_or_loaded(secret, "TCPStore")
            self._pool = self._open(deadline, wait_for_server)
            self._finalizer = weakref.finalize(self, self._pool.close)
            try:
                self._meet(world_size, wait_for_workers, deadline)
            except BaseException:
                self.close()
                raise

    @property
    def host(self) -> str:
        """The master's host, as it was given."""
        return self._host

    @property
    def port(self) -> int:
        """The port."""
        return self._port

    @property
    def is_master(self) -> bool:
        """Whether this object serves the store."""
        return self._is_master

    @property
    def identity(self) -> bytes | None:
        """What tells the server from all others; None before it has been reached."""
        return self._pool.identity

    @property
    def heard_at(self) -> float:
        """When the server has last answered this process, in time or not, by the monotonic clock."""
        return self._pool.heard_at

    def scan(self) -> Sequence[str]:
        return self.list_keys()

    def clone(self) -> TCPStore:
        """Return another user of the same server; it does not count as a worker."""
        self._check_open(operations.check)
        return TCPStore(self._host, self._port, timeout=self._timeout_s, secret=self.secret)

    def set_with_will(self, key: str, value: bytes | str, will: bytes | str) -> None:
        """Store a value that the server replaces once this process has gone, unless somebody has changed it before.

        The server sees within a second that a connection has ended, as with the process; one that the network has
        broken counts too. Each connection has one will, the last. A host that has lost its power is missed after some
        20 s only.

        Args:
            key: The key.
            value: What to store.
            will: What to store once the connection has ended.

        Examples:
            >>> store = dist.TCPStore("127.0.0.1", is_master=True)
            >>> store.set_with_will("state of 3", "at work", "gone")
            >>> store.get("state of 3")
            b'at work'
        """
        with shortened:
            self._run(set_with_will, self._timeout_s, to_key(key), to_value(value), to_value(will))

    def _have_met(self) -> None:
        """Give connections back that only the beginning has needed; who serves many clients has one of each less."""
        self._pool.let_go()

    def close(self) -> None:
        """Leave the store; if this object serves it, end it, once all that were answered have heard so."""
        super().close()
        self._finalizer()

    def __repr__(self) -> str:
        return f"TCPStore({self._host!r}, {self._port})"

    # ------------------------------------------------------------------ the beginning

    def _open(self, deadline: Deadline, patient: bool) -> Pool:
        from rankwise_stores.tcp.guard import Keys, addresses_of
        from rankwise_stores.tcp.pool import Pool

        keys = None if self.secret is None else Keys.of(self.secret)
        addresses = addresses_of(self._host, keys is not None, deadline.remaining())
        if not self._is_master:
            return Pool(repr(self), addresses, self._port, keys, patient=patient)
        from rankwise_stores.tcp.accepting import listen

        listener = listen(self._host, addresses, self._port, deadline)
        try:
            self._port = listener.port
            return Pool(repr(self), [listener.address], listener.port, keys, listener)
        except BaseException:
            listener.close()
            raise

    def _meet(self, world_size: int | None, wait_for_workers: bool, deadline: Deadline) -> None:
        """See that the server is there, and, as the master, that the others are."""
        if world_size is None:
            with self._pool.connection(deadline):
                return
        self._run(operations.add, deadline.remaining(), _WORKERS, 1)
        if self._is_master and wait_for_workers:
            self._await(wire.wait_for_workers, deadline.remaining(), _WORKERS, world_size)

    # ------------------------------------------------------------------ how operations run

    def _run(self, operation: Operation[_P, _R], limit_s: float, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        status, value = self._request(operation, None, limit_s, *args)
        return Missing(value) if status == wire.MISSING else value  # type: ignore[return-value]

    def _await(
        self, operation: Operation[_P, _R | Missing], timeout_s: float, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        try:
            status, value = self._request(operation, timeout_s, timeout_s + GRACE_S, *args)
        except DistTimeoutError as error:
            lacking = f"{operations.waited_for(args)}, and the server has not answered: {error}"
            raise late(self, operation, timeout_s, lacking) from None
        if status == wire.LATE:
            raise late(self, operation, timeout_s, value)
        return value  # type: ignore[no-any-return]

    def _request(
        self, operation: Callable[..., Any], wait_s: float | None, limit_s: float, *args: Any
    ) -> tuple[int, Any]:
        """Have the server carry out an operation; return status and value of its reply."""
        self._check_open(operation)
        deadline = Deadline(limit_s)
        with self._pool.connection(deadline) as connection:
            if wait_s is not None:
                wait_s = min(wait_s, deadline.remaining())
            reply = connection.request(operation.__name__, wait_s, args, deadline)
        if reply.status == wire.STORE_ERROR:
            raise DistStoreError(reply.value)
        return reply.status, reply.value

    def _check_open(self, operation: Callable[..., Any]) -> None:
        if self._pid != os.getpid():
            raise ForkedProcessError(
                f"{operations.title(operation)} on {self!r}: this process was forked from the one that opened the "
                "store; open it anew here"
            )
        super()._check_open(operation)


def _load() -> None:
    """Load sockets and all that guards them: when they are needed, and in nobody's time-out.

    Many programs only import the name. On a busy machine this takes seconds, and a server that nobody has asked yet
    would be called silent.
    """
    with loading():
        import msgpack  # noqa: F401
        import zmq  # noqa: F401

        import rankwise_stores.tcp.pool  # noqa: F401


def _check_address(host: str, port: int, is_master: bool) -> tuple[str, int]:
    if not isinstance(host, str):
        raise TypeError(f"TCPStore: host_name must be a str, not {host!r}")
    if not is_integer(port):
        raise TypeError(f"TCPStore: port must be an integer, not {shown(port)}")
    number = operator.index(port)
    if not 0 <= number < 1 << 16:
        raise ValueError(f"TCPStore: {number} is no port: they end at 65535")
    if number == 0 and not is_master:
        raise ValueError("TCPStore: only the master may leave the port open; give the port it has taken")
    return host, number
