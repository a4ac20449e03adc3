"""Some failures of some calls: on each path of the same type and in the same words."""

from __future__ import annotations

import random
from importlib.util import find_spec

import pytest
from by_path import compare
from failing_calls import DEATH, cells

pytestmark = pytest.mark.skipif(find_spec("rankwise_native") is None, reason="compiled paths are compared with others")


#: What fails before anything moves, and so without a wait.
AT_ONCE = ("destroyed group", "fork", "refused argument")


def test_what_fails_at_once_is_the_same_compiled_and_not() -> None:
    assert compare(["shm-python", "shm"], [cell for cell in cells() if cell[0] in AT_ONCE]) == []


def test_a_failure_is_the_same_compiled_and_not() -> None:
    listed = [cell for cell in cells() if cell[0] not in (*AT_ONCE, DEATH)]
    # What went wrong once is always tried.
    known = [("time-out", call, "warm", 4) for call in ("barrier", "all_reduce")]
    known += [("interrupt", "all_to_all", "warm", 4)]
    assert compare(["shm-python", "shm"], known + random.sample(listed, 8)) == []
