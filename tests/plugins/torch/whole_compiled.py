"""Compiled programs see over rankwise what they see over torch's gloo; `scripts/test-torch` runs it."""

import compiled_programs as programs
import pytest
from ranks import run


@pytest.mark.parametrize("program", ["calls", "models", "traced", "looked_on", "profiled"])
def test_the_same_as_with_gloo(program):
    """Of calls, of models that are trained, and of what looks on while programs run."""
    ours, theirs = (run(getattr(programs, program), backend=backend) for backend in ("rankwise", "gloo"))
    assert ours == theirs
    assert all(ours)
