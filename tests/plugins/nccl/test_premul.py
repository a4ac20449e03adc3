"""The op that multiplies before it sums: how it is asked of NCCL's library, which CuPy has no call for."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rankwise.errors import DistBackendError
from rankwise_nccl.library import binding, premul

COMM = SimpleNamespace(comm=4711)


class Library:
    """Records what is asked of the library."""

    def __init__(self, status: int = 0) -> None:
        self.status, self.log = status, list[Any]()

    def ncclRedOpCreatePreMulSum(self, op: Any, scalar: int, datatype: int, residence: int, comm: int) -> int:
        self.log.append(("create", ctypes.string_at(scalar, 4), datatype, residence, comm))
        op._obj.value = 9
        return self.status

    def ncclRedOpDestroy(self, op: Any, comm: int) -> int:
        self.log.append(("destroy", op.value, comm))
        return 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(premul, "_library", lambda: made)
    return made


def test_the_factor_is_read_from_the_host_in_the_arrays_own_type(library: Library) -> None:
    with premul.premultiplied(COMM, 0.5, np.dtype(np.float32), 7) as op:
        assert op == 9
        assert library.log == [("create", np.float32(0.5).tobytes(), 7, 1, 4711)]
    assert library.log[1:] == [("destroy", 9, 4711)]


def test_the_op_is_given_back_whatever_happens(library: Library) -> None:
    with pytest.raises(KeyError), premul.premultiplied(COMM, 2, np.dtype(np.float32), 7):
        raise KeyError
    assert library.log[-1] == ("destroy", 9, 4711)


def test_a_library_that_refuses_is_an_error(library: Library) -> None:
    library.status = 4
    with pytest.raises(DistBackendError, match="status 4"), premul.premultiplied(COMM, 2, np.dtype(np.float32), 7):
        pass
    assert [entry[0] for entry in library.log] == ["create"]


def test_a_library_without_it_is_an_error_that_names_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(premul, "_library", lambda: None)
    assert not premul.is_there()
    with pytest.raises(DistBackendError, match=r"NCCL 2\.11"), premul.premultiplied(COMM, 2, np.dtype("f4"), 7):
        pass


def test_where_there_is_no_library_it_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "_SONAME", "libthere-is-no-such-thing.so")
    binding.load.cache_clear()
    try:
        assert not premul.is_there()
    finally:
        binding.load.cache_clear()
