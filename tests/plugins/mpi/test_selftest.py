"""The test that a library's reductions must pass catches what libraries get wrong."""

from __future__ import annotations

import pytest
from tests.plugins.mpi import lies

PATIENCE_S = 60.0
SOON_S = 0.02


@pytest.mark.parametrize("lie", lies.LIES)
def test_a_lie_is_found_out_and_the_truth_is_not_called_one(alone, lie):
    assert alone(lies.judge, lie) == (False, True)


def test_what_one_rank_distrusts_no_rank_uses(alone):
    assert not alone(lies.distrust)


def test_all_kernels_are_tested_in_a_few_milliseconds(alone):
    assert alone(lies.time_all) < SOON_S
