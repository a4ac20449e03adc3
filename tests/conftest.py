"""What all tests share."""

import faulthandler
import math
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from tempfile import TemporaryDirectory

import pytest
from tests.processes import free_port

from rankwise.backends.registry import registry
from rankwise.groups.world import World, use

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has its background jobs ignore interrupts, and so would all that the tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# ---------------------------------------------------------------------- limits, by what the machine shows

#: How long a process takes to start where nothing else runs; by how much limits are stretched at most.
_START_S, _SLOWEST = 0.06, 20.0
#: The names of the limits in test modules: they hold for a machine with nothing else to do.
_LIMITS = ("PATIENCE_S", "_PATIENCE_S", "TIMEOUT_S", "LEEWAY_S")
#: How long a test may take, on such a machine; and what may pass then until the run is ended in its place.
_TEST_S, _STUCK_S = 300.0, 30.0


def _waiting():
    """Return how many processes want each processor, by the last minute's mean."""
    return os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0


def _slowness():
    """Return by how much slower than an idle machine this one is, at the start of a run."""
    started = []
    for _ in range(3):
        began = time.monotonic()
        subprocess.run([sys.executable, "-S", "-c", ""], check=True)
        started.append(time.monotonic() - began)
    return float(math.ceil(min(max(1.0, statistics.median(started) / _START_S, _waiting()), _SLOWEST)))


def pytest_configure(config):
    """Ask how slow the machine is, and keep answers of backends apart from the user's."""
    config.slowness = _slowness()
    cache = TemporaryDirectory(prefix="rankwise-answers-")  # of plugins that tests have made
    os.environ["XDG_CACHE_HOME"] = cache.name
    config.add_cleanup(cache.cleanup)
    config.limits = {}


def pytest_report_header(config):
    """Say by how much limits are stretched."""
    return f"limits: {config.slowness:.1f} times what they are on an idle machine"


def pytest_collection_modifyitems(config, items):
    """Stretch the limits of each test module."""
    for module in {item.module for item in items if hasattr(item, "module")} - config.limits.keys():
        limits = {name: getattr(module, name, None) for name in _LIMITS}
        config.limits[module] = {name: limit for name, limit in limits.items() if isinstance(limit, (int, float))}
        _stretch(config, module)


def _stretch(config, module):
    for name, limit in config.limits[module].items():
        setattr(module, name, limit * config.slowness)


class StandsStillError(Exception):
    """A test has taken far too long; the stacks of all threads are in its standard error."""


def _fail(number, frame):
    raise StandsStillError("this test stands still; see the stacks of all threads")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """Have a test that stands still fail, with all stacks; if it cannot even fail, end the run with its report."""
    if _waiting() > item.config.slowness:  # others have begun to work beside this run
        item.config.slowness = min(float(math.ceil(_waiting())), _SLOWEST)
    if item.config.limits.get(getattr(item, "module", None)):
        _stretch(item.config, item.module)
    limit_s = _TEST_S * item.config.slowness
    number = getattr(signal, "SIGRTMAX", None)
    capture = item.config.pluginmanager.getplugin("capturemanager")
    here, done = threading.get_ident(), threading.Event()

    def watch():
        if done.wait(limit_s):
            return
        faulthandler.dump_traceback(all_threads=True)
        if number is not None:
            signal.pthread_kill(here, number)
            if done.wait(_STUCK_S * item.config.slowness):
                return
        reporter = item.config.pluginmanager.getplugin("terminalreporter")
        capture.suspend_global_capture(in_=True)
        reporter.write_line(f"\n{item.nodeid} stands still; this is the report of what came before")
        reporter.summary_failures()
        reporter.summary_errors()
        reporter.short_test_summary()
        reporter._tw._file.flush()
        os._exit(3)

    before = None if number is None else signal.signal(number, _fail)
    watching = threading.Thread(target=watch, name="watchdog of a test", daemon=True)
    watching.start()
    try:
        yield
    finally:
        done.set()
        watching.join()
        if number is not None:
            signal.signal(number, before)


# ---------------------------------------------------------------------- fixtures

#: How many processes that ranks are forked from wait for the next pool of the same environment.
_ORIGINS = 6


@pytest.fixture(scope="session", autouse=True)
def _origins_are_kept():
    """Let pools share what they fork ranks from, one after another, where the harness is installed."""
    if find_spec("rankwise_testing") is None:
        yield
        return
    from rankwise_testing.origins import kept_origins

    with kept_origins(_ORIGINS):
        yield


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
    from rankwise.groups.world import CONTEXTS_WORLD

    token = use(World())
    yield
    leave_everything()
    CONTEXTS_WORLD.reset(token)


@pytest.fixture
def own_backends():
    """Unregister the backends that a test registers."""
    before = set(registry.names())
    yield
    for name in set(registry.names()) - before:
        registry.unregister(name)


@pytest.fixture
def no_secret(monkeypatch):
    """Let no job secret be known from the environment."""
    monkeypatch.delenv("RANKWISE_SECRET_FD", raising=False)
    monkeypatch.delenv("RANKWISE_SECRET_FILE", raising=False)


@pytest.fixture
def tcp_address():
    """An address where rank 0 may serve a store."""
    return f"tcp://127.0.0.1:{free_port()}"


@pytest.fixture(params=["tcp", "file"])
def address(request, tcp_address, tmp_path):
    """An address of either kind where ranks may meet."""
    return tcp_address if request.param == "tcp" else f"file://{tmp_path}/store"
