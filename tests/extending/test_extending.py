"""docs/where-to-change.md holds: what it says of a new reduce op and of a new collective is enough on all backends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankwise.backends import (
    API_VERSION,
    COLLECTIVES,
    IN_THREADS,
    BackendSpec,
    Capabilities,
    Device,
    derived,
    native,
)
from rankwise.backends.registry import registry
from rankwise.collective.call import OPERATIONS, Operation
from rankwise_local import LocalCommunicator, local_world, register_local
from rankwise_testing import run_ranks

sys.path.insert(0, str(Path(__file__).parent))
import extending_programs as programs

PATIENCE_S = 100.0

#: The ways to run: the backend, and the environment of its ranks.
WAYS = {
    "gloo": ("gloo", {"RANKWISE_NATIVE": "off"}),
    "gloo with the compiled parts": ("gloo", {"RANKWISE_NATIVE": "on"}),
    "gloo between hosts": ("gloo", {"RANKWISE_GLOO_TRANSPORT": "tcp"}),
    "mpi": ("mpi", {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}),
}


@pytest.fixture(params=WAYS)
def run(request: pytest.FixtureRequest) -> Callable[[Callable[..., Any]], list[Any]]:
    """Run a function of a backend's name on two ranks."""
    backend, env = WAYS[request.param]
    pytest.importorskip({"gloo": "rankwise_gloo_tcp", "mpi": "rankwise_mpi"}[backend])
    if env.get("RANKWISE_NATIVE") == "on":
        pytest.importorskip("rankwise_native", reason="rankwise-native is not installed: there may be no compiler")
    launch = registry.get(backend).launch
    return lambda function: run_ranks(function, 2, backend, launch=launch, env=env, timeout=PATIENCE_S, fork=False)


def test_a_new_reduce_op_is_one_line_of_the_table(run: Callable[[Callable[..., Any]], list[Any]]) -> None:
    *told, refused = zip(*run(programs.exclusive_or), strict=True)
    for everywhere, at_root, own in zip(told[::3], told[1::3], told[2::3], strict=True):
        assert everywhere == ([0, 1, 1, 0],) * 2
        assert at_root == (None, [0, 1, 1, 0])
        assert own == ([0, 1], [1, 0])
    assert all("does not do all_reduce(LXOR) of int64" in text for text in refused)


def test_a_new_collective_is_one_line_of_the_table(run: Callable[[Callable[..., Any]], list[Any]]) -> None:
    check_scans(run(programs.scanned))


def test_so_it_is_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        OPERATIONS, "scan", Operation(programs.same_shape, programs.Described(programs.scan_in_steps), reduces=True)
    )
    table = Capabilities(
        "local", {"cpu": Device({**native("send", "recv"), **derived(*COLLECTIVES)}, derived("async", "timeout"))}
    )
    registry.register(BackendSpec("local", API_VERSION, table, LocalCommunicator, launch=IN_THREADS), replace=True)
    try:
        with local_world(2) as world:
            check_scans(world.run(programs.scanned))
    finally:
        register_local()  # the true one again


def check_scans(told: list[Any]) -> None:
    first, second = told
    assert first[:4] == [[1.0, 2.0, 3.0]] * 3 + [[1]]
    assert second[:4] == [[11.0, 13.0, 15.0]] * 3 + [[2]]
    assert all(first[4:] + second[4:])
