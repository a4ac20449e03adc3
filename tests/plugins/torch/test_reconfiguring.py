"""A default group of torch whose members change, by torch's calls of 2.14 and by rankwise's."""

import pytest
import reconfiguring_programs as programs
from ranks import run


@pytest.mark.parametrize("program", ["shapes", "by_torchs_word"])
def test_members_leave_and_come_back(program):
    """They train together each time."""
    run(getattr(programs, program), 3, backend=None)


def test_other_groups_refuse():
    """Those whose members do not change."""
    run(programs.others_do_not)
