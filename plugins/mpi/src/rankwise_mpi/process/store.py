"""`MpiStore`: a store whose requests travel over MPI, so that a job on MPI needs neither address nor secret.

A rank keeps the values, and its progress thread serves the others: rank 0 those of the job, and the first member of a
group what its members meet by, for which rank 0 is not needed.
"""

from __future__ import annotations

import contextlib
import copy
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

import msgpack
import numpy as np
from mpi4py import MPI

from rankwise.backends import Store
from rankwise.errors import DistStoreError
from rankwise_mpi.library import ulfm
from rankwise_mpi.process.line import Line
from rankwise_mpi.process.process import Process
from rankwise_mpi.process.waiting import wait_until

_REQUEST_TAG = 1
#: MPI guarantees no more tags than 32,767.
_ANSWER_TAGS = 32_000
#: In place of the number of a request that nobody waits for.
_NO_ANSWER = -1
#: How long the ranks may take to come together for the store's communicator, in calls that wait for no answer.
_OPENING_S = 60.0
#: How seldom a rank looks for requests while there are none: rank 0, which is asked by heartbeats, and the others.
_LONGEST_PAUSE_S, _LONGEST_PAUSE_OF_OTHERS_S = 0.003, 0.02

_Value = bytes | None


class MpiStore(Store):
    """A store on a communicator of its own; it lives as long as MPI does.

    Args:
        process: MPI in this process, at MPI_THREAD_MULTIPLE.
    """

    #: How long a rank may be silent here. While one thread is in a large reduction others may not get into MPI at all;
    #: and when a rank dies it is for the launcher, or ULFM, to notice.
    silence_s = 60.0

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process
        #: The rank that keeps the values.
        self._host = 0
        pause_s = _LONGEST_PAUSE_OF_OTHERS_S if process.rank else _LONGEST_PAUSE_S
        self._line = Line(process, self._serve, pause_s)
        self._values: dict[str, bytes] = {}
        self._one = threading.Lock()
        self._numbers = count()
        self._operations: dict[str, Callable[..., Any]] = {
            "peek": self._values.get,
            "swap": self._swap_here,
            "scan": lambda: list(self._values),
            "look": lambda keys: [self._values.get(key) for key in keys],
            "post": self._values.__setitem__,
        }

    def among(self, ranks: Sequence[int]) -> MpiStore:
        """Return a store that the first of some ranks keeps."""
        twin = copy.copy(self)
        twin._host = min(ranks)
        return twin

    def peek(self, key: str) -> _Value:
        """Return a value, or None."""
        found: _Value = self._ask("peek", key)
        return found

    def swap(self, key: str, expected: _Value, desired: _Value) -> _Value:
        """Replace a value if it is the expected one, and return what was found."""
        found: _Value = self._ask("swap", key, expected, desired)
        return found

    def scan(self) -> Sequence[str]:
        """Return all keys."""
        keys: Sequence[str] = self._ask("scan")
        return keys

    def post(self, key: str, value: bytes) -> None:
        """Store a value some time soon, without waiting; if that fails, nothing is said."""
        if self._process.rank == self._host:
            with self._one:
                self._values[key] = value
            return
        with contextlib.suppress(MPI.Exception, DistStoreError), self._line.call(_OPENING_S) as comm:
            self._process.keep(*_sent(comm, [_NO_ANSWER, "post", (key, value)], self._host, _REQUEST_TAG))

    def look(self, keys: Sequence[str], timeout_s: float) -> list[_Value] | None:
        """Return the values of several keys, None for those that are absent; None for all if the host is silent."""
        try:
            found: list[_Value] = self._ask("look", list(keys), timeout_s=timeout_s)
        except DistStoreError:
            return None
        return found

    def ask_for(self, keys: Sequence[str]) -> Callable[[], list[_Value] | None]:
        """Ask for the values of several keys, waiting for nothing; return what gives them once they have come."""
        if self._process.rank == self._host:
            with self._one:
                found = self._operations["look"](keys)
            return lambda: found
        number = next(self._numbers)
        with contextlib.suppress(MPI.Exception, DistStoreError), self._line.call(_OPENING_S) as comm:
            self._process.keep(*_sent(comm, [number, "look", [list(keys)]], self._host, _REQUEST_TAG))
            return partial(self._come, number)
        return lambda: None

    def _come(self, number: int) -> Any:
        """Return the answer to a request, None if it has not come."""
        with contextlib.suppress(MPI.Exception, DistStoreError), self._line.call(_OPENING_S) as comm:
            return next(iter(_improbed(comm, self._host, number)), None)
        return None

    def _swap_here(self, key: str, expected: _Value, desired: _Value) -> _Value:
        found = self._values.get(key)
        if found == expected:
            if desired is None:
                self._values.pop(key, None)
            else:
                self._values[key] = desired
        return found

    def _ask(self, operation: str, *args: Any, timeout_s: float = math.inf) -> Any:
        """Let the host do one operation."""
        timeout_s = min(timeout_s, self.timeout.total_seconds())
        # Several threads may be asking, and each has to get its own answer.
        number = next(self._numbers)
        try:
            with self._line.call(self.timeout.total_seconds()) as comm:
                if self._process.rank != self._host:
                    self._process.keep(*_sent(comm, [number, operation, args], self._host, _REQUEST_TAG))
                    return self._received(comm, number, timeout_s)
                self._line.hurry()  # who waits for others here may be what they wait for
            with self._one:
                return self._operations[operation](*args)
        except MPI.Exception as error:
            raise DistStoreError(f"{self!r}: rank {self._host}, which keeps it, cannot be reached: {error}") from error

    def _received(self, comm: MPI.Intracomm, number: int, timeout_s: float) -> Any:
        """Return the answer to a request; one that nobody waited for any more may still lie under the same tag."""
        taken: list[Any] = []

        def look() -> bool:
            taken[:] = _improbed(comm, self._host, number)
            return bool(taken)

        if not wait_until(look, timeout_s, lambda: None):
            raise DistStoreError(f"rank {self._host}, which keeps the store, has not answered within {timeout_s:g} s")
        return taken[0]

    def _serve(self) -> bool:
        """Answer all requests that have come; tell whether there were any. The progress thread calls this."""
        served = False
        comm = self._line.opened(_OPENING_S)
        status = MPI.Status()
        try:
            while (met := comm.Improbe(MPI.ANY_SOURCE, _REQUEST_TAG, status)) is not None:
                number, operation, args = _taken(met, status)
                with self._one:
                    answer = self._operations[operation](*args)
                if number != _NO_ANSWER:
                    self._process.keep(*_sent(comm, [number, answer], status.Get_source(), _tag_of(number)))
                served = True
        except MPI.Exception:
            ulfm.acknowledge(comm)  # somebody has died; the others are still to be served
        return served


def _sent(comm: MPI.Intracomm, value: Any, peer: int, tag: int) -> tuple[MPI.Request, Any]:
    """Begin to send a value; return the request and the buffer."""
    data = np.frombuffer(msgpack.packb(value), np.uint8)
    return comm.Isend((data, data.nbytes, MPI.BYTE), peer, tag), data


def _tag_of(number: int) -> int:
    return _REQUEST_TAG + 1 + number % _ANSWER_TAGS


def _improbed(comm: MPI.Intracomm, host: int, number: int) -> list[Any]:
    """Return the answer to a request in a list, which is empty if it has not come."""
    status = MPI.Status()
    met = comm.Improbe(host, _tag_of(number), status)
    if met is None:
        return []
    of, answer = _taken(met, status)
    return [answer] if of == number else []


def _taken(met: MPI.Message, status: MPI.Status) -> Any:
    data = np.empty(status.Get_count(MPI.BYTE), np.uint8)
    met.Recv((data, data.nbytes, MPI.BYTE))
    return msgpack.unpackb(data.tobytes())
