"""The conformance suite under a real `mpiexec`."""

from __future__ import annotations

from tests import kit

#: What is chosen by the number of ranks beyond a few is chosen by MPI, not here; and where many ranks share few cores,
#: the time goes into starting them and into their looking for each other.
_MAX_SIZE = 4
TIMEOUT_S = 280.0


def test_the_capability_table_is_the_truth(clean_environment, tmp_path):
    options = ["--backend", "mpi", "--max-size", str(_MAX_SIZE)]
    kit.passes(*options, cwd=tmp_path, timeout_s=TIMEOUT_S, env=clean_environment())
