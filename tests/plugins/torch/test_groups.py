"""Groups of all kinds: of which ranks, on which backends, for which devices; and how they end."""

import group_programs as programs
import pytest
from ranks import run


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("program", ["shapes", "split", "aborted"])
def test_groups(program, size):
    """On an even and an odd number of ranks."""
    run(getattr(programs, program), size)


@pytest.mark.parametrize("program", ["again", "facts", "made_late", "not_for_cuda", "split_by_function"])
def test_lives(program):
    """What does not depend on the number of ranks."""
    run(getattr(programs, program))


@pytest.mark.parametrize("default", ["gloo", "rankwise"])
def test_under_another_default_group(default):
    """Groups on several backends in one world."""
    run(programs.under_gloo, backend=default)


@pytest.mark.parametrize("program", ["beside", "as_gloo", "with_secret"])
def test_beginnings(program):
    """Names that stand for more than one backend, or for another, and stores of torch's."""
    run(getattr(programs, program), backend=None)


def test_entry_points_load():
    """Torch 2.14 and later load the names from here."""
    from importlib.metadata import entry_points

    import torch.distributed as dist

    from rankwise_torch.names import NAMES

    points = entry_points(group="torch.distributed.backends")
    ours = {point.name: point for point in points if point.value.startswith("rankwise_torch")}
    assert set(ours) == set(NAMES)
    ours["rankwise"].load()()
    assert all(dist.is_backend_available(name) for name in NAMES)
