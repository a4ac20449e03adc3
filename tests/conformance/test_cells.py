"""Random cells over several backends: what the answers say is what the calls do; and a table that lies is noticed."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import cells
from tests.processes import environment

import rankwise as dist
from rankwise.backends import IN_THREADS, BackendSpec, Capabilities, native
from rankwise.backends.registry import registry
from rankwise_local import LocalCommunicator
from rankwise_local.communicator import CAPABILITIES

PROGRAM = Path(cells.__file__)
TIMEOUT_S = 120.0
WHOLE = CAPABILITIES.devices["cpu"]


def test_a_sample_of_cells_of_every_kind_of_backend_is_as_it_is_said():
    command = [sys.executable, str(PROGRAM), "local", "wire", "entangled", "--cells", "100"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert done.stdout.count(", 0 wrong") == 3


class _Refuses(LocalCommunicator):
    def algorithm(self, call):
        if call.op == "gather":
            raise dist.UnsupportedOperationError("gather: not on a Friday")
        return super().algorithm(call)


class _Errs(LocalCommunicator):
    def algorithm(self, call):
        real = super().algorithm(call)
        if call.op != "broadcast" or call.array.size < 100:  # no objects
            return real

        def wrong(deadline, counts):
            real(deadline, counts)
            call.array.view("u1")[-1] ^= 1

        return wrong


LIES = {
    "refused": (_Refuses, {}, "gather", "it is offered, and was refused"),
    "wrong": (_Errs, {}, "broadcast", "elements are wrong"),
    "by nobody": (LocalCommunicator, native("all_gather"), "all_gather", "it is native, and it was derived"),
}


@pytest.fixture(params=list(LIES))
def lie(request) -> Iterator[tuple[str, str]]:
    """Register a backend whose table is wrong about one operation."""
    create, more, op, told = LIES[request.param]
    table = Capabilities("liar", {"cpu": replace(WHOLE, ops={**WHOLE.ops, **more})})
    registry.register(BackendSpec("liar", 1, table, create, launch=IN_THREADS, attends=True))
    yield op, told
    registry.unregister("liar")


def test_a_table_that_lies_is_noticed_and_nothing_else(lie):
    op, told = lie
    _, _, wrong = cells.try_backend("liar", "cpu", 150, 1)
    assert wrong
    assert all(told in text for text in wrong if f"op='{op}'" in text)
    assert {text.partition("op='")[2].partition("'")[0] for text in wrong} <= {op, ""}
