"""Floats of 16 bits are reduced in 32, every value to the bits that NumPy gives: compiled or not, or both at once."""

from __future__ import annotations

from importlib.util import find_spec

import halves_programs as programs
import pytest

from rankwise_testing import RankPool

TIMEOUT_S = 120.0
#: Numbers of ranks, and RANKWISE_NATIVE in each; the second half of two ranks has the compiled parts alone.
WAYS = {"python": (2, "off"), "native": (2, "on"), "three": (3, "on"), "mixed": (2, "{rank}")}
if not find_spec("rankwise_native"):
    WAYS = {"python": (2, "off")}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_every_value_is_reduced_as_by_numpy(way: str, transport: str) -> None:
    size, native = WAYS[way]
    shifts = [2_654_435_761 * (len(way) + k) % 65_536 for k in range(2)]
    with RankPool(size, env={"RANKWISE_GLOO_TRANSPORT": transport, "RANKWISE_NATIVE": native}) as pool:
        for wrong in pool.run(programs.every_value, shifts, timeout=TIMEOUT_S):
            assert {name: count for name, count in wrong.items() if count} == {}
