"""What all tests share."""

import pytest

from rankwise.world import World, use


@pytest.fixture(autouse=True)
def own_world():
    """Give each test a world of its own, and destroy what it has left in it."""
    import rankwise
    from rankwise.world import _current

    token = use(World())
    yield
    if rankwise.is_initialized():
        rankwise.destroy_process_group()
    _current.reset(token)
