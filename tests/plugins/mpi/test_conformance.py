"""The conformance suite under a real `mpiexec`, in a few shares, as each has its ranks started anew."""

from __future__ import annotations

import pytest
from tests import kit

#: What is chosen by the number of ranks beyond a few is chosen by MPI, not here; and where many ranks share few cores,
#: the time goes into starting them.
_MAX_SIZE = 5
TIMEOUT_S = 280.0
_SHARES = 4


@pytest.mark.parametrize("share", range(_SHARES))
def test_the_capability_table_is_the_truth(clean_environment, tmp_path, share):
    options, parts = ["--backend", "mpi", "--max-size", str(_MAX_SIZE)], kit.PARTS[share::_SHARES]
    kit.passes(*options, cwd=tmp_path, timeout_s=TIMEOUT_S, env=clean_environment(), parts=parts)
