"""Wrappers around rankwise: the recorder and the errors name the line that has called the wrapper."""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import rankwise as dist
from rankwise.basics import tracebacks as callers
from rankwise.basics.recording import FlightRecorder, make_recorder
from rankwise.groups.world import World, use
from rankwise_local import local_world, register_local
from rankwise_watch.noting import PythonRecorder
from rankwise_watch.recorder import site

PATIENCE_S = 10.0

WRAPPER = """
import rankwise as dist

def reduce(array):
    return inner(array)

def inner(array):
    dist.all_reduce(array)

def send(array):
    return dist.isend(array, 0)

def apply(call, *args):
    return call(*args)
"""


@pytest.fixture
def wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package around rankwise, and a registry that is as it was afterwards."""
    folder = tmp_path / "wrapping"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "calls.py").write_text(WRAPPER)
    (tmp_path / "wrapping_too.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(callers.skipped)
    yield importlib.import_module("wrapping.calls")
    callers.skipped[:] = before
    callers.known_outside.clear()
    callers.known_inside.clear()
    for name in [name for name in sys.modules if name.startswith("wrapping")]:
        del sys.modules[name]


@pytest.fixture(params=[PythonRecorder, make_recorder], ids=["python", "default"])
def recorder(request: pytest.FixtureRequest) -> Iterator[FlightRecorder]:
    register_local()
    world = World(recorder=request.param())
    use(world)
    dist.init_process_group("local", rank=0, world_size=1)
    yield world.recorder
    dist.destroy_process_group()


def last(recorder: FlightRecorder) -> tuple[str, int, str]:
    file, line, function = site(recorder.entries()[-1])
    return Path(file).name, line, function


def here() -> int:
    return inspect.currentframe().f_back.f_lineno  # type: ignore[union-attr]


def test_the_line_that_has_called_the_wrapper_is_noted(recorder: FlightRecorder, wrapper: ModuleType) -> None:
    name = "test_the_line_that_has_called_the_wrapper_is_noted"
    wrapper.reduce(np.ones(1))
    assert last(recorder)[::2] == ("calls.py", "inner")
    dist.skip_callers("wrapping")
    wrapper.reduce(np.ones(1)), here()
    assert last(recorder) == ("test_callers.py", here() - 1, name)
    wrapper.send(np.ones(1))
    dist.irecv(np.ones(1), 0)
    assert site(recorder.entries()[-2])[1] == here() - 2
    dist.all_reduce(np.ones(1))  # of the program's own
    assert last(recorder) == ("test_callers.py", here() - 1, name)


def test_a_module_may_be_skipped_alone_and_before_it_is_imported(recorder: FlightRecorder, wrapper: ModuleType) -> None:
    dist.skip_callers("wrapping.calls", "wrapping.calls", "wrapping_too")
    assert [Path(path).name for path in callers.skipped[-2:]] == ["calls.py", "wrapping_too.py"]
    assert "wrapping_too" not in sys.modules
    wrapper.reduce(np.ones(1))
    assert last(recorder)[:2] == ("test_callers.py", here() - 1)


def test_a_callback_of_the_program_within_the_wrapper_is_the_programs(
    recorder: FlightRecorder, wrapper: ModuleType
) -> None:
    dist.skip_callers("wrapping")
    wrapper.apply(lambda: dist.all_reduce(np.ones(1)))
    assert last(recorder) == ("test_callers.py", here() - 1, "<lambda>")


def test_where_there_is_nothing_but_the_wrapper_its_outermost_line_is_noted(
    recorder: FlightRecorder, wrapper: ModuleType
) -> None:
    dist.skip_callers("wrapping", "threading")
    thread = threading.Thread(target=copy_context().run, args=(wrapper.reduce, np.ones(1)))
    thread.start()
    thread.join(PATIENCE_S)
    assert last(recorder)[::2] == ("threading.py", "_bootstrap")


@pytest.mark.parametrize(
    ("name", "error"),
    [("no_such_module", ModuleNotFoundError), ("no_such.module", ModuleNotFoundError), ("sys", ValueError)],
)
def test_what_is_no_module_of_files_is_refused(name: str, error: type[Exception]) -> None:
    before = list(callers.skipped)
    with pytest.raises(error, match=name.partition(".")[0]):
        dist.skip_callers(name)
    assert callers.skipped == before


def test_a_mismatch_names_the_lines_that_have_called_the_wrapper(wrapper: ModuleType) -> None:
    def program() -> str:
        rank = dist.get_rank()
        with pytest.raises(dist.CollectiveMismatchError) as told:
            wrapper.reduce(np.ones(2 + rank))
        return str(told.value)

    with local_world(2, timeout=20) as world:
        assert "at calls.py:" in world.run(program)[0]
        dist.skip_callers("wrapping")
        first, second = world.run(program)
    assert first == second
    assert "calls.py" not in first
    assert first.count(f"at test_callers.py:{program.__code__.co_firstlineno + 3}") == 2
