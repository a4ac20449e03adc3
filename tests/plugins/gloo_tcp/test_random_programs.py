"""Random programs give what they must, on any hosts, compiled or not; `random_programs.py` runs more."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rankwise_native", reason="rankwise-native is not installed")

sys.path.insert(0, str(Path(__file__).parent))
from random_programs import Pools, drawn

from rankwise_gloo_tcp.transport import openssl

#: As many of each way of having the compiled parts and of each way of guarding frames; a failure names its seed.
SEEDS = range(2010, 2028)


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools]:
    """The ranks."""
    with Pools() as pools:
        yield pools


@pytest.mark.skipif(not openssl.is_usable(), reason="nothing is encrypted here")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_program_gives_what_it_must(pools: Pools, seed: int) -> None:
    program = drawn(seed)
    assert not pools.run(program), program
