"""The `mpi` backend of rankwise: collectives and messages through MPI, by way of mpi4py's buffer calls.

Most users call nothing here: `rankwise.init_process_group("mpi")` finds `rankwise_mpi.plugin`. Importing this package,
or the declaration in `plugin`, neither imports mpi4py nor initialises MPI. Programs that use mpi4py too make groups of
communicators, and communicators of groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankwise_mpi.beside import comm_of, group_from_comm

__all__ = ["__version__", "comm_of", "group_from_comm"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in __all__:
        from rankwise_mpi import beside

        return getattr(beside, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
