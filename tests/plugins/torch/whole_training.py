"""Training over rankwise in the ways that `test_training.py` leaves out; `scripts/test-torch` runs it."""

import pytest
import training_programs as programs
from ranks import run


@pytest.mark.parametrize(
    "program", ["ddp_unused", "ddp_hooks", "ddp_join", "zero", "tensor_parallel", "functional", "pipeline"]
)
def test_the_same_as_with_gloo(program):
    """To the last bit: on two ranks there is but one order of summation."""
    ours, theirs = (run(getattr(programs, program), backend=backend) for backend in ("rankwise", "gloo"))
    assert ours == theirs
    assert any(ours)


def test_checkpoints(tmp_path):
    """A checkpoint of a sharded model is what was saved."""
    ours, theirs = (run(programs.checkpoint, backend=backend, folder=str(tmp_path)) for backend in ("rankwise", "gloo"))
    assert ours == theirs


def test_nearly_the_same_on_more_ranks():
    """There the order of summation differs, and so the last bits."""
    ours, theirs = (run(programs.ddp, 3, backend=backend) for backend in ("rankwise", "gloo"))
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other, rel=1e-5)
