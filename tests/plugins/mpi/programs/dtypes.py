"""With RANKWISE_DEBUG=detail, a message that meets a receive of another dtype is an error that names both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rankwise as dist

dist.init_process_group("mpi", timeout=20)
rank = dist.get_rank()
PAIRS = [("i8", "f8"), (">i4", "<i4"), ("f4", "i4"), ([("a", "i4")], [("b", "i4")]), ("u1", "i1"), ("M8[s]", "M8[ms]")]


def send_or(receive: Any, array: Any, **terms: Any) -> None:
    if rank == 1:
        dist.send(array, 0, **terms)
    elif rank == 0:
        receive()


def receive(array: Any, wait: bool) -> None:
    if wait:
        dist.recv(array, 1)
    else:
        work = dist.irecv(array, 1)
        assert work is not None
        work.wait()


def receives_nothing(array: Any, said: str, wait: bool) -> None:
    before = array.tobytes()
    with pytest.raises(dist.DistBackendError, match=said) as caught:
        receive(array, wait)
    assert "receive into uint8" in str(caught.value)
    assert array.tobytes() == before


for have, want in PAIRS:
    sent, got = np.ones(5, np.int8).astype(have), np.zeros(5, want)
    for wait in (True, False):
        send_or(lambda wait=wait, got=got: receives_nothing(got, r"from rank 1 \(tag 0\)", wait), sent)
    raw = np.zeros(sent.nbytes, np.uint8)
    send_or(lambda raw=raw: dist.recv(raw), sent)
    assert rank != 0 or raw.tobytes() == sent.tobytes()


def receives_too_much(array: Any) -> None:
    with pytest.raises(dist.DistBackendError, match=r"72 bytes from rank 1 \(tag 3\) met a receive of 32 bytes"):
        dist.recv(array, 1, tag=3)


longer = np.arange(9.0)
send_or(lambda: receives_too_much(np.zeros(4)), longer, tag=3)
room = np.full(9, -1.0)
send_or(lambda: dist.recv(room, 1, tag=5), longer[:4], tag=5)  # a shorter one fills the beginning
assert rank != 0 or room.tolist() == [0, 1, 2, 3, -1, -1, -1, -1, -1]
array = np.ones(3)
dist.all_reduce(array)
assert (array == dist.get_world_size()).all()
dist.destroy_process_group()
print("fine", flush=True)
