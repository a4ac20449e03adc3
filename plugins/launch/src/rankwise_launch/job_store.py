"""The store in which the ranks of an attempt meet: the launcher of node 0 serves it, and no rank has to.

It listens before the ranks are started, and who comes early waits in the kernel's queue. What answers them is loaded
when the first has come, or when all have been started and run for a moment: so no job begins later for it, and one
whose ranks never meet costs a socket.
"""

from __future__ import annotations

import errno
import select
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from rankwise.errors import DistError
from rankwise.launching import held, loading
from rankwise_launch.config import ExitCode, LaunchError
from rankwise_launch.dead import Dead
from rankwise_network.interface import DNS_TIMEOUT_S, at_free_port, is_loopback, listening, numeric
from rankwise_network.secret import Secret

if TYPE_CHECKING:
    from rankwise_stores.serving import Pool

#: So many descriptors are enough for some thousands of ranks.
_DESCRIPTORS = 1 << 16


class JobStore:
    """One attempt's store, from its socket to its end.

    Args:
        host: The address of node 0, by which the ranks come.
        taken: A port of it that is not to be used.
        secret: The job's.

    Attributes:
        port: Where it listens.

    Raises:
        DistError: It cannot listen there.
        OSError: Likewise.
        ValueError: The host is none, or no port is allowed.
    """

    def __init__(self, host: str, taken: int, secret: Secret) -> None:
        self._host, self._secret = host, secret
        self._address, self._listening = _listen(host, taken)
        self.port = int(self._listening.getsockname()[1])
        self._pool: Pool | None = None
        self._limit: int | None = None

    def fileno(self) -> int:
        """Return a descriptor that is readable once somebody has come; until `serve` has been called."""
        return self._listening.fileno()

    @property
    def is_served(self) -> bool:
        """Whether ranks that come are answered."""
        return self._pool is not None

    def is_awaited(self) -> bool:
        """Tell whether somebody has come whom nobody answers so far."""
        if self.is_served:
            return False
        poller = select.poll()
        poller.register(self._listening, select.POLLIN)
        return bool(poller.poll(0))

    def load(self) -> None:
        """Load what `serve` needs, which takes longer than the rest of it; again does nothing."""
        with suppress(ImportError), loading():
            import rankwise_launch.serving  # noqa: F401

    def serve(self) -> None:
        """Answer ranks that come, in a thread, until `close`.

        Raises:
            LaunchError: The system refuses.
        """
        self.load()
        try:
            from rankwise_launch.serving import raise_limit, serve

            with held:
                # After the ranks were started, for they inherit it.
                self._limit = raise_limit(_DESCRIPTORS)
                self._pool = serve(self._host, self._address, self._listening, self._secret)
        except (DistError, OSError, ImportError) as error:
            text = f"cannot serve the store in which the ranks meet: {error}"
            raise LaunchError(ExitCode.CANNOT_START, text) from error

    def tell_of_death(self, dead: Dead) -> None:
        """Have the ranks that meet, and would wait for one that has ended, raise that it has."""
        if self._pool is not None:
            from rankwise_launch.serving import tell_of_death

            tell_of_death(self._address, self.port, self._secret, dead)

    def spare(self, process: int) -> None:
        """Give a process that was started since `serve` the limit of descriptors that the others have."""
        if self._limit is not None:
            from rankwise_launch.serving import set_limit

            set_limit(self._limit, process)

    def close(self) -> None:
        """End it; again does nothing."""
        with held:
            self._listening.close()
            if self._pool is not None:
                self._pool.close()
            if self._limit is not None:
                from rankwise_launch.serving import set_limit

                set_limit(self._limit)
            self._pool = self._limit = None


def _listen(host: str, taken: int) -> tuple[str, socket.socket]:
    """Return the first address of a host that is this machine's, and a socket that listens there."""
    addresses = _addresses(host)
    for address in addresses:
        try:
            return address, at_free_port(partial(_listen_at, address, taken))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL or address == addresses[-1]:
                raise
    raise AssertionError


def _addresses(host: str) -> list[str]:
    """Return where those look who are told of the host, in that order."""
    found = numeric(host)
    if found is not None and is_loopback(found):
        return [found]  # as on most single nodes, for which nothing else is loaded
    from rankwise_stores.serving import addresses_of

    return addresses_of(host, True, DNS_TIMEOUT_S)


def _listen_at(address: str, taken: int, port: int) -> socket.socket:
    if port == taken:  # by a socket that does not listen: this one could have it beside that
        raise OSError(errno.EADDRINUSE, "the port is kept for the program")
    return listening(address, port)
