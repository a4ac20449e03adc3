"""What all tests share."""

import signal

import pytest

from rankwise.groups.world import World, use

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has its background jobs ignore interrupts, and so would all that the tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_world():
    """Give each test a world of its own, and destroy what it has left in it."""
    import rankwise
    from rankwise.groups.world import _current

    token = use(World())
    yield
    if rankwise.is_initialized():
        rankwise.destroy_process_group()
    _current.reset(token)
