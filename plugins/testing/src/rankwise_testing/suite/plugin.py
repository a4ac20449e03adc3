"""The pytest plugin of the suite: its options, its fixtures, and the report. Loaded only in the suite's own runs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from random import randrange
from typing import Any

import pytest

import rankwise
import rankwise_local  # noqa: F401  # registers "local"
from rankwise.errors import BackendNotFoundError, PluginError
from rankwise.kits import FEATURES, BackendSpec, Deadline, registry
from rankwise_testing.suite.arrays import why_not
from rankwise_testing.suite.coverage import Coverage
from rankwise_testing.suite.expect import has_no_store
from rankwise_testing.suite.measuring import CellName, Measurements
from rankwise_testing.suite.place import register_from
from rankwise_testing.suite.promises import (
    FAST_PATIENCE_S,
    FAST_S,
    FAST_WALL_S,
    NOT_TRIED,
    Progress,
    estimate_s,
    order,
    write_badge,
)
from rankwise_testing.suite.report import write_report
from rankwise_testing.suite.worlds import REDUCING, RUN_S, Ranks, ThreadRanks, make_ranks

needs = pytest.mark.needs


class Kit:
    """The backend under test, the ranks to try it on, and what was found out."""

    def __init__(self, spec: BackendSpec, ranks: Ranks, variant: str, seed: int) -> None:
        self.spec, self.ranks, self.variant, self.seed = spec, ranks, variant, seed
        self.device, self.plain, self.other = ranks.device, ranks.terms.plain, ranks.terms.other
        self.measurements = Measurements(ranks, spec)
        self.measured: list[CellName] = []
        self.features: dict[str, bool] = {}
        #: The test that has shown what a feature, or a cell that differs from the table, does.
        self.shown_by: dict[str | CellName, str] = {}
        self.progress = Progress(None)
        #: What is no mistake, and the author may want to know.
        self.notes: list[str] = []

    def run(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a function on a world that other tests use too, see `Ranks`; skip the test if there is none so large."""
        __tracebackhide__ = True
        self.sizes(size)
        return self.ranks.run(size, function, *args)

    def run_alone(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a function on a world of its own, likewise."""
        __tracebackhide__ = True
        self.sizes(size)
        return self.ranks.run_alone(size, function, *args)

    def run_outside(self, size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a function where there is no world yet, likewise."""
        __tracebackhide__ = True
        self.sizes(size)
        return self.ranks.run_outside(size, function, *args)

    def run_doomed(self, size: int, doomed: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a function on a world in which one rank dies, likewise."""
        __tracebackhide__ = True
        self.sizes(size)
        return self.ranks.run_doomed(size, doomed, function, *args)

    def sizes(self, *sizes: int) -> list[int]:
        """Return the sizes of which the table says that groups can be made; skip the test if there are none."""
        can = self.spec.capabilities.sizes
        there = [size for size in sizes if size in can]
        if not there:
            pytest.skip(f"backend {self.spec.name!r} declares no groups of {' or '.join(map(str, sizes))} ranks")
        return there

    @cached_property
    def has_no_store(self) -> bool:
        """Whether the ranks have nothing but the backend to learn of each other by."""
        found: bool = self.ranks.run_alone(self.measurements.sizes[0], has_no_store)[0]
        return found

    @property
    def in_threads(self) -> bool:
        """Whether all ranks share this process."""
        return isinstance(self.ranks, ThreadRanks)

    def lacks(self, name: str) -> str:
        """Return why a feature, or an operation on the plain dtype, cannot be used; nothing if it can."""
        offered = self.measurements.usable[name]
        if offered and (
            name in FEATURES or self.measurements.declares(name, "SUM" if name in REDUCING else None, self.plain)
        ):
            return ""
        if offered:
            return f"backend {self.spec.name!r} declares no {name} of {self.plain} on {self.device}"
        reason = self.spec.capabilities.cell(name, self.device).reason
        return f"backend {self.spec.name!r} declares no {name} on {self.device}" + (f": {reason}" if reason else "")

    def coverage(self) -> Coverage:
        """Return what was covered so far."""
        return Coverage.of(self.measurements, self.measured, self.features, self.variant)

    def require(self, dtype: str, *ops: str, reduce: str | None = None) -> None:
        """Skip the test unless the table offers operations on a dtype, of which arrays can be made here."""
        if reason := why_not(dtype, self.device):
            pytest.skip(reason)
        for op in ops:
            if not self.measurements.declares(op, reduce if op in REDUCING else None, dtype):
                what = f"{op}({reduce})" if op in REDUCING else op
                pytest.skip(f"backend {self.spec.name!r} declares no {what} of {dtype} on {self.device}")

    def on_host_only(self, why: str) -> None:
        """Skip the test on any other device."""
        if self.device != "cpu":
            pytest.skip(why)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the suite's options."""
    group = parser.getgroup("rankwise", "conformance of a rankwise backend")
    group.addoption("--backend", metavar="NAME", help="the backend to test")
    group.addoption("--device", default="cpu", metavar="KIND", help="the kind of device; default cpu")
    group.addoption(
        "--launch", default="", metavar="COMMAND", help="how to start ranks: processes, threads, or a command"
    )
    group.addoption("--patience", type=float, default=RUN_S, metavar="S", help=f"how long a test may take ({RUN_S:g})")
    group.addoption("--max-size", type=int, metavar="N", help="leave out larger worlds, if many ranks share few cores")
    group.addoption("--variant", default="", metavar="NAME", help="one of the backend's variants; default none")
    group.addoption("--seed", type=int, metavar="N", help="seed for random sizes, factors and roots")
    group.addoption(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="an environment variable for the ranks"
    )
    group.addoption("--plugin-module", metavar="MODULE[:FUNCTION]", help="a module whose backend to register first")
    group.addoption(
        "--fast",
        action="store_true",
        help=f"try each promise in part, within {FAST_S:g} s of processor time",
    )
    group.addoption("--badge", type=Path, metavar="FILE", help="write the result as JSON for publishing")
    group.addoption("--report", type=Path, metavar="FILE", help="write the declared and the measured table, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Find the backend, before anything is collected."""
    config.addinivalue_line("markers", "slow: not in a fast run")
    config.addinivalue_line("markers", "needs(*names): operations and features that the backend must declare")
    env = dict(pair.split("=", 1) for pair in config.getoption("--env"))
    os.environ.update({name: value for name, value in env.items() if "{rank}" not in value})
    module, device = config.getoption("--plugin-module"), config.getoption("--device")
    register_from(module)
    spec = _spec(config.getoption("--backend"), device)
    variant = config.getoption("--variant")
    env = {**_variables(spec, variant), **env}
    launch, patience_s = shlex.split(config.getoption("--launch")), config.getoption("--patience")
    patience_s = min(patience_s, FAST_PATIENCE_S) if config.getoption("--fast") else patience_s
    asked = config.getoption("--seed")
    seed = randrange(1 << 31) if asked is None else asked
    config.stash[_KIT] = Kit(spec, make_ranks(spec, device, launch, env, module, patience_s), variant, seed)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let those tests come first that are likely to fail; a fast run tries of the cells one dtype each."""
    kit, fast, max_size = config.stash[_KIT], config.getoption("--fast"), config.getoption("--max-size")
    kit.progress = Progress(FAST_S, end=Deadline(FAST_WALL_S)) if fast else Progress(None)
    kit.ranks.end = kit.progress.end
    out = [item for item in items if max_size is not None and _parameters(item).get("size", 0) > max_size]
    if fast:
        out += [item for item in items if _module(item) == "test_cells" and not _is_plain(item, kit.plain)]
        out += [item for item in items if item.get_closest_marker("slow")]
    if out:
        items[:] = [item for item in items if item not in set(out)]
        config.hook.pytest_deselected(items=out)
    places = dict(zip(items, order(map(_module, items), fast), strict=True))
    items.sort(key=lambda item: places[item])


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Say how long it will take."""
    fast, reporter = session.config.getoption("--fast"), session.config.pluginmanager.get_plugin("terminalreporter")
    seconds = estimate_s(map(_module, session.items))
    seconds = min(seconds, FAST_S) if fast else seconds
    if reporter is not None and session.items:
        about = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"
        reporter.write_line(f"{len(session.items)} tests, which take about {about}")


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0].rpartition("/")[2].removesuffix(".py")


def _name(item: pytest.Item) -> str:
    return item.nodeid.rpartition("::")[2]


def _parameters(item: pytest.Item) -> Mapping[str, Any]:
    return getattr(getattr(item, "callspec", None), "params", {})


def _is_plain(item: pytest.Item, plain: str) -> bool:
    parameters = _parameters(item)
    return parameters.get("dtype", plain) == plain or parameters.get("op") == "barrier"


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the ranks."""
    if _KIT in config.stash:
        kit = config.stash[_KIT]
        kit.ranks.close()
        if line := kit.progress.last_line():
            print(line)


def pytest_report_header(config: pytest.Config) -> str:
    """Say what is being proved."""
    kit = config.stash[_KIT]
    where = "threads" if kit.in_threads else "processes"
    how = f", variant {kit.variant!r}" if kit.variant else ""
    what = f"backend {kit.spec.name!r} on {kit.device}{how}"
    return f"rankwise {rankwise.__version__}: {what}, ranks are {where}, --seed {kit.seed}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note of each feature whether its tests pass."""
    report = yield
    kit = item.config.stash[_KIT]
    if report.failed and kit.ranks.cut_short:
        kit.progress.leave_out(_module(item))
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, _NO_TIME)
    if report.when == "call" or report.outcome != "passed":
        kit.progress.note(_module(item), report.outcome, _name(item))
    if report.when == "call" or report.failed:
        for name in _needed(item):
            if name in FEATURES and not report.skipped:
                kit.features[name] = kit.features.get(name, True) and report.passed
                if report.failed:
                    kit.shown_by.setdefault(name, _name(item))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the report; a promise that there was no time for is no success."""
    path, kit = session.config.getoption("--report"), session.config.stash[_KIT]
    if session.exitstatus == pytest.ExitCode.OK and kit.progress.not_tried:
        session.exitstatus = NOT_TRIED
    if path is not None:
        write_report(path, kit.measurements, kit.measured, kit.features, kit.shown_by, kit.coverage(), kit.progress)
    badge = session.config.getoption("--badge")
    if badge is not None:
        provider, covered = registry.provider(kit.spec.name), asdict(kit.coverage())
        write_badge(badge, kit.spec.name, provider, kit.device, kit.progress, covered)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was covered, and what was declared and not run."""
    kit = config.stash[_KIT]
    if kit.ranks.sizes:
        terminalreporter.section("covered")
        for line in kit.coverage().lines():
            terminalreporter.line(line)
        if kit.notes:
            terminalreporter.section("notes")
            for line in sorted(kit.notes):
                terminalreporter.line(line)
        terminalreporter.section("promises")
        for line in kit.progress.lines():
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def kit(request: pytest.FixtureRequest) -> Kit:
    """Return the backend under test and the ranks to try it on."""
    return request.config.stash[_KIT]


@pytest.fixture(autouse=True, scope="session")
def _ranks_can_start(kit: Kit) -> None:
    """End the run if there can be no ranks: every test would say the same."""
    try:
        kit.measurements.usable  # noqa: B018 - the smallest world tells it
    except Exception as error:
        size = kit.measurements.sizes[0]
        problem = f"backend {kit.spec.name!r} cannot make a world of {size}, which its table offers (`sizes`): "
        pytest.exit(f"{problem}{type(error).__name__}: {error}", returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.fixture(autouse=True)
def _ends_by_its_timeouts(kit: Kit) -> None:
    """End a run that would go on for hours."""
    if kit.ranks.stood_still >= _ENOUGH:
        what = f"backend {kit.spec.name!r}: {_ENOUGH} tests stood still whatever their time-outs were; giving up"
        pytest.exit(what, returncode=pytest.ExitCode.TESTS_FAILED)


@pytest.fixture(autouse=True)
def _has_time(request: pytest.FixtureRequest, kit: Kit) -> None:
    if kit.progress.is_late():
        kit.progress.leave_out(_module(request.node))
        pytest.skip(_NO_TIME)


@pytest.fixture(autouse=True)
def _has_what_it_needs(request: pytest.FixtureRequest, kit: Kit) -> None:
    for name in _needed(request.node):
        if reason := kit.lacks(name):
            pytest.skip(reason)


_KIT = pytest.StashKey[Kit]()
_NO_TIME = "there is no time for it in a fast run"
#: After so many tests that stood still the others are not tried.
_ENOUGH = 5


def _variables(spec: BackendSpec, variant: str) -> Mapping[str, str]:
    """Return the variables that choose a variant, or end the run if there is no such."""
    if variant and variant not in spec.variants:
        there = ", ".join(spec.variants) or "none"
        raise pytest.UsageError(f"{spec.name!r} declares no variant {variant!r} (it declares {there})")
    return spec.variants[variant] if variant else {}


def _needed(item: pytest.Item) -> list[str]:
    return [name for marker in item.iter_markers("needs") for name in marker.args]


def _spec(name: str | None, device: str) -> BackendSpec:
    """Return the backend that is to be proved, or end the run with the reason why that cannot be done."""
    if name is None:
        raise pytest.UsageError(f"give --backend NAME (installed: {', '.join(registry.names())})")
    try:
        spec = registry.get(name)
    except (BackendNotFoundError, PluginError) as error:
        raise pytest.UsageError(str(error)) from error
    if device not in spec.capabilities.devices:
        raise pytest.UsageError(f"{name!r} serves {', '.join(spec.capabilities.devices)}, not {device!r}")
    if device != "cpu" and device not in spec.capabilities.usable_devices():
        why = next((cell.reason for cell in spec.capabilities.devices[device].ops.values() if cell.reason), "")
        raise pytest.UsageError(f"{name!r} has no {device} here" + (f": {why}" if why else ""))
    answer = registry.availability(name)
    if not answer:
        raise pytest.UsageError(f"{name!r} cannot run here: {answer.reason}; {answer.remedy}".rstrip("; "))
    return spec
