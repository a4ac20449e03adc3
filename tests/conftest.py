"""What all tests share."""

import signal
from importlib.util import find_spec

import pytest

from rankwise.groups.world import World, use

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has its background jobs ignore interrupts, and so would all that the tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


#: The compiled parts, where they could be built, and what stands in for them.
COMPILED = ("on", "off") if find_spec("rankwise_native") else ("off",)


@pytest.fixture(scope="module", params=COMPILED, ids=lambda way: f"native-{way}")
def compiled(request):
    """Run whatever asks for it both ways; the value is what RANKWISE_NATIVE must be in the processes that it starts."""
    return request.param


@pytest.fixture(scope="module")
def both_ways(compiled):
    """Let all processes that a module's tests start have the compiled parts, and then let none have them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANKWISE_NATIVE", compiled)
        yield


@pytest.fixture(autouse=True)
def own_world():
    """Give each test a world of its own, and destroy what it has left in it."""
    from rankwise.groups.lifecycle import leave_everything
    from rankwise.groups.world import _current

    token = use(World())
    yield
    leave_everything()
    _current.reset(token)
