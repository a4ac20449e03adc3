"""Training over rankwise gives the losses that training over torch's gloo gives; `whole_training.py` has the rest."""

import pytest
import training_programs as programs
from ranks import run


@pytest.mark.parametrize("program", ["ddp", "fsdp1", "fsdp2"])
def test_the_same_as_with_gloo(program):
    """To the last bit: on two ranks there is but one order of summation."""
    ours, theirs = (run(getattr(programs, program), backend=backend) for backend in ("rankwise", "gloo"))
    assert ours == theirs
    assert any(ours)
