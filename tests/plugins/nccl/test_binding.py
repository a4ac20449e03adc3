"""NCCL's functions as the plugin calls them, by what a library would be given."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from rankwise_nccl.library.binding import BUSY, NAMES, Nccl, NcclError


class Library:
    """Records what it is given, and answers with a status."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.status = self.state = 0

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> int:
            self.log.append((name, *args))
            return self.status

        return call

    def ncclCommInitRankConfig(self, made: Any, size: int, unique: Any, rank: int, config: Any) -> int:
        made._obj.value = 4711
        given = config._obj
        self.log.append(("init", size, bytes(unique), rank, given.blocking, given.size, given.magic))
        return self.status

    def ncclCommGetAsyncError(self, comm: int, state: Any) -> int:
        state._obj.value = self.state
        return self.status

    def ncclGetErrorString(self, status: int) -> bytes:
        return b"an error"

    def ncclGetLastError(self, comm: None) -> bytes:
        return b"the last words\n"


@pytest.fixture
def library() -> Library:
    return Library()


def communicator(library: Library) -> Any:
    library.status = BUSY
    made = Nccl(library).NcclCommunicator(2, b"\xff" * 128, 1)
    library.status = 0
    return made


def test_communicators_are_made_not_to_block(library: Library) -> None:
    assert communicator(library).comm == 4711
    name, size, unique, rank, blocking, nbytes, magic = library.log[0]
    assert (name, size, unique, rank, blocking, magic) == ("init", 2, b"\xff" * 128, 1, 0, 0xCAFEBEEF)
    assert nbytes == ctypes.sizeof(ctypes.c_size_t) + 6 * 4 + 4 + 4 + ctypes.sizeof(ctypes.c_void_p)


def test_a_communicator_is_busy_until_nccl_says_otherwise(library: Library) -> None:
    comm = communicator(library)
    library.state = BUSY
    assert comm.check_async_error() is True
    library.state = 0
    assert comm.check_async_error() is False


@pytest.mark.parametrize("status", NAMES)
def test_every_other_status_is_an_error_with_the_last_words_of_nccl(library: Library, status: int) -> None:
    comm = communicator(library)
    library.state = status
    with pytest.raises(NcclError) as caught:
        comm.check_async_error()
    assert (caught.value.status, str(caught.value)) == (status, f"{NAMES[status]}: an error; the last words")


def test_calls_are_given_the_communicator_before_the_stream(library: Library) -> None:
    comm = communicator(library)
    comm.allReduce(1, 2, 3, 7, 0, 99)
    comm.reduce(1, 2, 3, 7, 0, 5, 99)
    comm.send(1, 3, 7, 5, 99)
    assert library.log[1:] == [
        ("ncclAllReduce", 1, 2, 3, 7, 0, 4711, 99),
        ("ncclReduce", 1, 2, 3, 7, 0, 5, 4711, 99),
        ("ncclSend", 1, 3, 7, 5, 4711, 99),
    ]
