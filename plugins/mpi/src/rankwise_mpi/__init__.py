"""The `mpi` backend of rankwise: collectives and messages through MPI, by way of mpi4py's buffer calls.

Nothing here is called by users; `rankwise.init_process_group("mpi")` finds `rankwise_mpi.plugin`. Importing this
package, or the declaration in `plugin`, neither imports mpi4py nor initialises MPI.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
