"""The dtype of a message: another one is an error on the receiver that names both, and bytes take anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rankwise as dist
from rankwise.errors import DistError, DistTimeoutError
from rankwise.kits import dtype_name, dtype_text
from rankwise_testing.suite.arrays import on_device, same
from rankwise_testing.suite.expect import begun, error_of, host, still_usable
from rankwise_testing.suite.plugin import Kit, needs

pytestmark = needs("send", "recv", "barrier", "message_dtypes")

#: What is sent, and what it is received into; of the same size, as a message that is too long is another error.
_PAIRS: dict[str, tuple[Any, Any]] = {
    "int64 into float64": ("<i8", "<f8"),
    "int32 into uint32": ("<i4", "<u4"),
    "the other byte order": ("<i4", ">i4"),
    "bool into int8": ("?", "i1"),
    "bytes into int8": ("u1", "i1"),
    "complex64 into float64": ("<c8", "<f8"),
    "datetime64 of another unit": ("M8[s]", "M8[ms]"),
    "datetime64 into timedelta64": ("M8[s]", "m8[s]"),
    "text into integers": ("U2", "<i8"),
    "other fields": ([("a", "<i4"), ("b", "<i4")], [("a", "<i4"), ("c", "<i4")]),
    "fields in another order": ([("a", "<i4"), ("b", "<f4")], [("b", "<f4"), ("a", "<i4")]),
}
_COUNTS = (0, 1, 3, 20_000, 700_000)


@pytest.mark.parametrize("what", list(_PAIRS))
def test_another_dtype_is_an_error_that_names_both_and_the_group_goes_on(kit: Kit, what: str) -> None:
    kit.on_host_only("CuPy does not have all of these dtypes")
    for dtype in _PAIRS[what]:
        kit.require(dtype_name(np.dtype(dtype)), "send", "recv")
    kit.run(2, received_as_another, what)


def received_as_another(what: str) -> None:
    sent, wanted = map(np.dtype, _PAIRS[what])
    for count in _COUNTS:
        for receiver_first in (False, True):
            if dist.get_rank() == 0:
                _meet(receiver_first)
                works = [begun(dist.isend(array, 1)) for array in (np.zeros(count, sent), host(7, 7))]
                _meet(not receiver_first)
                for work in works:
                    work.wait()  # it is the receiver's mistake
            else:
                _receive_both(np.zeros(count, wanted), sent, receiver_first)
    still_usable()


def _meet(now: bool) -> None:
    if now:
        dist.barrier()


def _receive_both(array: Any, sent: np.dtype[Any], receiver_first: bool) -> None:
    following = host(0, 0)
    before = array.copy()
    if receiver_first:
        works = begun(dist.irecv(array, 0)), begun(dist.irecv(following, 0))
        _meet(True)
    else:
        _meet(True)
        works = begun(dist.irecv(array, 0)), begun(dist.irecv(following, 0))
    error = error_of(DistError, works[0].wait)
    assert not isinstance(error, DistTimeoutError), error
    names = [dtype_text(array.dtype)] + ([] if sent.names else [dtype_text(sent)])
    missing = [name for name in names if name not in str(error)]
    assert not missing, f"the error does not name {missing}: {error}"
    same(array, before)
    assert not works[0].is_success()
    works[1].wait()  # the message that did not fit is gone, and does not come again
    same(following, host(7, 7))


@needs("any_source")
def test_so_it_is_from_anyone(kit: Kit) -> None:
    kit.on_host_only("messages to a GPU come from a rank that is known")
    for dtype in ("int64", "float64"):
        kit.require(dtype, "send", "recv")
    kit.run(2, from_anyone)


def from_anyone() -> None:
    if dist.get_rank() == 0:
        begun(dist.isend(np.zeros(4, np.int64), 1)).wait()
        dist.send(np.full(4, 3.0), 1)
    else:
        array = np.zeros(4)
        error = error_of(DistError, dist.recv, array)
        assert "int64" in str(error), error
        assert "float64" in str(error), error
        assert dist.recv(array) == 0
        same(array, np.full(4, 3.0))


def test_bytes_take_a_message_of_any_dtype(kit: Kit) -> None:
    kit.require("uint8", "send", "recv")
    dtypes = [np.dtype(dtype) for pair in _PAIRS.values() for dtype in pair]
    kit.run(2, received_as_bytes, [d for d in dtypes if kit.measurements.declares("send", None, dtype_name(d))])


def received_as_bytes(dtypes: list[np.dtype[Any]]) -> None:
    for count in _COUNTS:
        for dtype in dtypes:
            data = np.arange(count * dtype.itemsize, dtype=np.uint8) % 2  # booleans are 0 or 1
            if dist.get_rank() == 0:
                dist.send(on_device(data.view(dtype)), 1)
            else:
                array = on_device(np.zeros(data.size, np.uint8))
                dist.recv(array, 0)
                same(array, data)
