"""Every call of torch.distributed over rankwise, with every dtype and layout that torch has on the CPU."""

import collective_programs as programs
import pytest
from ranks import run


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    "program", ["every_call", "uneven", "messages", "coalesced", "sparse", "averages", "memory_orders"]
)
def test_calls(program, size):
    """On an even and an odd number of ranks."""
    run(getattr(programs, program), size)


_KINDS = """
    every_dtype moved_alone objects direct quiet_when_synchronous memory own_calls events waiting_in_callbacks
""".split()


@pytest.mark.parametrize("program", _KINDS)
def test_kinds(program):
    """What does not depend on the number of ranks."""
    run(getattr(programs, program))
