"""What is loaded when: without the garbage collector, which comes back, and of a backend before the ranks meet."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import rankwise as dist
from rankwise.backends import API_VERSION, IN_THREADS, BackendSpec, loading
from rankwise.backends.registry import registry
from rankwise.groups.world import World, use
from rankwise_local import LocalCommunicator, register_local
from rankwise_local.communicator import CAPABILITIES

PATIENCE_S = 20


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_nothing_is_collected_meanwhile() -> None:
    with loading():
        assert not gc.isenabled()
        with loading():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_module_that_cannot_be_loaded_changes_nothing() -> None:
    with pytest.raises(ModuleNotFoundError), loading():
        import rankwise_that_is_not_there  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()


def test_a_program_without_collection_stays_so() -> None:
    gc.disable()
    with loading():
        pass
    assert not gc.isenabled()


def test_an_interrupt_while_a_name_is_loaded_shows_the_line_that_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pythons: dict[str, Any] = {"__name__": "importlib"}
    exec("def interrupted(name):\n    raise KeyboardInterrupt", pythons)
    monkeypatch.delitem(vars(dist), "barrier", raising=False)
    monkeypatch.setattr("rankwise.basics.loading.import_module", pythons["interrupted"])
    with pytest.raises(KeyboardInterrupt) as error:
        dist.barrier()
    monkeypatch.undo()
    shown = [frame.name for frame in traceback.extract_tb(error.tb)]
    assert shown[0] == "test_an_interrupt_while_a_name_is_loaded_shows_the_line_that_asked_for_it"
    assert "interrupted" not in shown


@pytest.fixture
def says() -> Iterator[Callable[[Callable[[], object]], None]]:
    """What gives the backend `local` something to load."""

    def give(load: Callable[[], object]) -> None:
        spec = BackendSpec("local", API_VERSION, CAPABILITIES, LocalCommunicator, launch=IN_THREADS, load=load)
        registry.register(spec, replace=True)

    yield give
    register_local()  # the true one again


def test_a_rank_loads_the_backend_before_the_others_have_come(says: Callable[[Callable[[], object]], None]) -> None:
    loaded, store = threading.Event(), dist.HashStore()
    says(loaded.set)

    def rank(number: int) -> None:
        use(World())
        assert number == 0 or loaded.wait(PATIENCE_S)
        dist.init_process_group("local", store=store, rank=number, world_size=2, timeout=PATIENCE_S)
        dist.barrier()
        dist.destroy_process_group()

    with ThreadPoolExecutor(2) as ranks:
        list(ranks.map(rank, range(2)))


@pytest.mark.parametrize("load", [lambda: 1 / 0, sys.exit], ids=["raises", "exits"])
def test_what_goes_wrong_while_a_backend_loads_is_left_to_its_create(
    says: Callable[[Callable[[], object]], None], load: Callable[[], object]
) -> None:
    says(load)
    dist.init_process_group("local", rank=0, world_size=1, store=dist.HashStore(), timeout=PATIENCE_S)
    dist.destroy_process_group()
