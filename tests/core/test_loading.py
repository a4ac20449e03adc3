"""While modules are loaded the garbage collector stands back, and it comes back whatever happens."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from rankwise.backends import loading


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
