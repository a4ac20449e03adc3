"""A rank that never initialises MPI: the others must not wait past their time-out."""

from __future__ import annotations

import os
import signal

import rankwise as dist

rank = next(int(os.environ[name]) for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if name in os.environ)
if rank == 1:
    signal.pause()
dist.init_process_group("mpi", timeout=2)
