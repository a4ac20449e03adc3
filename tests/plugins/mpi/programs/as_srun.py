"""Put a program in this process's place with the environment that srun gives: mpiexec, which is here, gives another.

`srun --mpi=pmix` tells Open MPI by PMIX_ variables, `srun --mpi=pmi2` tells MPICH by PMI_ ones; both set SLURM_ ones.
"""

from __future__ import annotations

import os
import sys

rank = os.environ.get("PMIX_RANK") or os.environ["PMI_RANK"]
size = os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ["PMI_SIZE"]
of_mpiexec = ("OMPI_COMM_", "OMPI_UNIVERSE", "OMPI_ARGV", "OMPI_APP", "MPI_LOCAL", "HYDRA", "HYDI")
kept = {name: value for name, value in os.environ.items() if not name.startswith(of_mpiexec)}
slurm = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "node01",
    "SLURM_PROCID": rank,
    "SLURM_LOCALID": rank,
    "SLURM_NTASKS": size,
    "SLURM_STEP_NUM_TASKS": size,
}
os.execve(sys.executable, [sys.executable, *sys.argv[1:]], {**kept, **slurm})
