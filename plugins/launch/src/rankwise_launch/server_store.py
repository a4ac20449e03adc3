"""The store in which the ranks of an attempt meet, where it is on a server: it outlives all launchers and ranks."""

from __future__ import annotations

from contextlib import suppress

from rankwise.errors import DistError
from rankwise_launch.config import ExitCode, LaunchError
from rankwise_launch.dead import Dead

#: What telling the ranks of a death may take.
_TELL_S = 5.0


class ServerStore:
    """One launcher's way to it, in place of a `JobStore`. As long as one has it, the server keeps what is there.

    Args:
        url: Where it is.

    Raises:
        LaunchError: The server cannot be reached.
    """

    def __init__(self, url: str) -> None:
        from rankwise_stores.serving import opened

        try:
            self._store = opened(url, _TELL_S)
        except (DistError, OSError) as error:
            raise LaunchError(
                ExitCode.CANNOT_START, f"cannot open the store in which the ranks meet: {error}"
            ) from error

    def tell_of_death(self, dead: Dead) -> None:
        """Have the ranks that meet, and would wait for one that has ended, raise that it has."""
        from rankwise_launch.serving import tell

        with suppress(DistError, OSError):
            tell(self._store, dead)

    def spare(self, process: int) -> None:
        """Do nothing: no limit was raised."""

    def close(self) -> None:
        """Leave it."""
        with suppress(DistError, OSError):
            self._store.close()
