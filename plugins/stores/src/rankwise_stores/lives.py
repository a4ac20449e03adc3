"""Whose keys lie under a prefix: lives, which begin with their first user and end with their last.

Each user has a seat, and says every few seconds that it is present. A life of which nobody is present is over: the next
to come begins another one, and sees nothing of the old. One who comes while somebody is present joins that life only
if it is alive, which a new beat shows, as those of a job that was killed a moment ago still count as present. The life
must also have a place for this rank: as many ranks, this one's seat free, and nobody gone. Otherwise the rank waits
until that life is over.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from rankwise.errors import DistError, DistStoreError
from rankwise.stores import Deadline, heed, start_thread
from rankwise_stores.line import Census, Life, Line, LostError, Server, insist

_R = TypeVar("_R")

#: How long a user counts as present after its last beat.
PRESENT_S = 10.0
#: How long the server keeps what nobody has removed: a job that was killed, and whose prefix nobody uses again.
KEPT_S = 3600.0

_BEAT_EVERY_S = 2.5
#: The founder beats more often while others may come, who wait for a new beat: after a twentieth of its age.
_FOUNDER_S, _OF_AGE = 0.05, 20.0
_LEAVE_S = 1.0
_PAUSE_S, _GRACE_S = 0.02, 1.0
_MARK_NBYTES = 8
#: The size of a life that a user has begun who is no rank.
_ANY = -1


class Membership:
    """One process's seat in the life under a prefix. Its clones share it.

    Args:
        server: The server, and the prefix.
        rank: This rank; -1 for a user who is none.
        size: How many ranks there are; -1 for any number of users.
        deadline: When to give up.

    Raises:
        DistNetworkError: The server cannot be reached.
        DistStoreError: It refuses, or another job has been using the prefix all the time.
    """

    def __init__(self, server: Server, rank: int, size: int, deadline: Deadline) -> None:
        self._server, self._line, self._size = server, server.line(), size
        self._own = os.urandom(8).hex()
        self._is_rank = rank >= 0
        self.seat = str(rank) if self._is_rank else f"user {self._own}"
        self._beats = 0
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._users = 1
        self._is_founder = False
        #: What tells the thread to end, and that it has ended: an interrupt leaves neither half-way.
        self._stop, self._ended = SimpleQueue[None](), SimpleQueue[None]()
        self._thread = threading.Thread(target=self._keep_telling, name="rankwise presence", daemon=True)
        try:
            self.life = self._join(deadline)
            self._began = time.monotonic()
            start_thread(self._thread)
        except BaseException:
            self._line.disconnect()
            raise

    def share(self) -> Membership:
        """Count another user of this process."""
        with self._lock:
            self._users += 1
        return self

    def have_met(self) -> None:
        """Be told that nobody else will come."""
        self._is_founder = False

    def leave(self) -> None:
        """Give the seat up if this was the last user of this process; the last process removes all keys."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._users -= 1
            if self._users:
                return
        self._stop.put(None)
        line = self._line if _comes(self._ended, _LEAVE_S) else self._server.line()
        with contextlib.suppress(DistError):  # then the server forgets this user by itself, and the keys in the end
            insist(lambda s: line.leave(self.life, self.seat, self._is_rank, s), Deadline(_LEAVE_S), self._server.name)
        line.disconnect()

    # ------------------------------------------------------------------ joining

    def _join(self, deadline: Deadline) -> Life:
        first: Census | None = None
        while True:
            patience = deadline if first is None else Deadline(deadline.remaining() + _GRACE_S)  # for who has answered
            now = self._ask(lambda line, s: line.census(s), patience)
            if first is None or first.life != now.life:
                first = now
            joined = self._found(now, patience) if self._is_over(now) else self._sit(first, now, patience)
            if joined is not None:
                return joined
            if deadline.expired():
                raise DistStoreError(f"{self._server.name}: {self._in_use(now)}")
            heed()
            time.sleep(min(_PAUSE_S, deadline.remaining()))

    def _found(self, now: Census, deadline: Deadline) -> Life | None:
        life = Life(os.urandom(_MARK_NBYTES).hex(), self._size)
        began = self._ask(lambda line, s: line.found(now.life, life, self.seat, self._beat(), s), deadline)
        self._is_founder = began is not None
        return began

    def _sit(self, first: Census, now: Census, deadline: Deadline) -> Life | None:
        life = now.life
        if life is None or self._not_for_this_one(now) or not self._is_alive(first, now):
            return None
        return life if self._ask(lambda line, s: line.sit(life, self.seat, self._beat(), s), deadline) else None

    def _not_for_this_one(self, now: Census) -> str:
        """Return why this user has no place in a life, "" if it has."""
        assert now.life is not None
        if not self._is_rank:
            return ""
        seat = now.seats.get(self.seat)
        if seat is not None and not seat.beat.startswith(self._own):
            return f"rank {self.seat} has joined already"
        if now.life.size not in (_ANY, self._size):
            return f"it has {now.life.size} ranks, and not {self._size}"
        gone = [name for name, each in now.seats.items() if name.isdigit() and not each.is_present]
        return f"rank {min(gone)} has left it" if gone else ""

    def _in_use(self, now: Census) -> str:
        why = "" if now.life is None else self._not_for_this_one(now)
        return (
            f"another job uses this prefix{why and f' ({why})'}, or was killed within the last {PRESENT_S:g} s; "
            "give each job its own prefix"
        )

    @staticmethod
    def _is_over(now: Census) -> bool:
        return now.life is None or not any(seat.is_present for seat in now.seats.values())

    @staticmethod
    def _is_alive(first: Census, now: Census) -> bool:
        """Tell whether somebody has come, or said that it is there, since this user has looked first."""
        return any(seat.is_present and first.seats.get(name) != seat for name, seat in now.seats.items())

    # ------------------------------------------------------------------ telling

    def _beat(self) -> str:
        self._beats += 1
        return f"{self._own} {self._beats}"

    def _ask(self, request: Callable[[Line, float], _R], deadline: Deadline) -> _R:
        return insist(lambda within_s: request(self._line, within_s), deadline, self._server.name)

    def _keep_telling(self) -> None:
        while not _comes(self._stop, self._pause_s()):
            try:
                if not self._line.beat(self.life, self.seat, self._beat(), _BEAT_EVERY_S):
                    break  # its operations will say so
            except (LostError, DistError):
                continue  # it may be back the next time
        self._ended.put(None)

    def _pause_s(self) -> float:
        if not self._is_founder:
            return _BEAT_EVERY_S
        return min(max(_FOUNDER_S, (time.monotonic() - self._began) / _OF_AGE), _BEAT_EVERY_S)


def _comes(queue: SimpleQueue[None], within_s: float) -> bool:
    """Wait until somebody has put something into a queue, and tell whether it came in time."""
    try:
        queue.get(timeout=within_s)
    except Empty:
        return False
    return True
