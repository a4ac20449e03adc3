"""Beginnings and ends of groups of which one rank's is interrupted, and what must be true afterwards.

The rule (docs/interrupts.md): an interrupted `init_process_group` or `new_group` has made no group, and may be made
again. The others wait for that, or hear who was interrupted, in this call or in the first of that group, and make it
again too. An interrupted `destroy_process_group` has ended the group, or may be made again. In the end there is a world
that works, and nobody stands still until a time-out.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from interrupt_checks import Checks, Interrupted, Stopped, unraisable
from interrupt_points import Point, Tally

import rankwise as dist

_TIMEOUT_S = 20.0
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
#: More attempts than this, and it would never end.
_ATTEMPTS = 6


class Wrong(AssertionError):
    """A beginning or an end has left what it must not leave."""


class Victim:
    """Has one call of this rank's interrupted, if it is this rank's turn."""

    def __init__(self, checks: Checks, at: float, lengths: dict[str, int], case: str, mine: bool, late: float) -> None:
        self._checks, self._at, self._lengths, self._case = checks, at, lengths, case
        self._pending, self._late = mine, late
        self.was = False

    def __call__(self, call: Callable[[], Any]) -> Any:
        """Make a call; where it is interrupted, raise what the handler has raised."""
        if not self._pending:
            time.sleep(self._late)
            self._late = 0.0
            return call()
        self._pending, checks = False, self._checks
        try:
            checks.arm(1 + int(self._at * self._lengths.get(self._case, 2000)))
            found = call()
            checks.disarm()
            self._lengths[self._case] = max(1, int(checks.count * 1.05))
            return found
        except (Interrupted, Stopped):
            self.was = True
            raise
        finally:
            checks.disarm()


class Desk:
    """Where a point is tried: the backend, and what all ranks agree on without a group."""

    def __init__(self, backend: str, control: Any, rank: int, name: str, timeout_s: float = _TIMEOUT_S) -> None:
        self.backend, self.rank, self._control, self._name = backend, rank, control, name
        self.timeout_s = timeout_s
        self._told = 0

    def tell(self, value: Any) -> list[Any]:
        """Return what both ranks say."""
        self._told += 1
        place = f"{self._name}/{self._told}"
        self._control.set(f"{place}/{self.rank}", json.dumps(value))
        return [json.loads(self._control.get(f"{place}/{rank}")) for rank in range(2)]

    def address(self) -> str:
        """Return an address that is free, the same on both ranks."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        return f"tcp://127.0.0.1:{self.tell(port)[0]}"

    def init(self, address: str) -> None:
        """Make the default group."""
        where = {} if self.backend == "mpi" else {"init_method": address, "world_size": 2, "rank": self.rank}
        dist.init_process_group(self.backend, timeout=self.timeout_s, **where)


def _works(group: Any = None) -> None:
    array = np.ones(4)
    dist.all_reduce(array, group=group)
    if array[0] != 2:
        raise Wrong(f"all_reduce brings {array[0]}")
    dist.barrier(group)


def _until_it_works(begin: Callable[[], Any], end: Callable[[], Any]) -> Any:
    """Begin, again and again, until what has begun works."""
    said = []
    for _ in range(_ATTEMPTS):
        try:
            found = begin()
            _works(found)
            return found
        except (Interrupted, Stopped) as error:
            said.append(f"interrupted at {error}")
        except dist.DistTimeoutError:
            raise
        except dist.DistError as error:
            said.append(f"{type(error).__name__}: {error}")
        end()
    raise Wrong(f"it does not come about: {said}")


def _end_all() -> None:
    with contextlib.suppress(dist.DistError, ValueError):
        dist.destroy_process_group()
    if dist.is_initialized():
        raise Wrong("there is a group still")


def _init(desk: Desk, victim: Victim) -> None:
    address = desk.address()

    def begin() -> None:
        if dist.is_initialized():
            raise Wrong("an interrupted init_process_group has left a group")
        victim(lambda: desk.init(address))

    _until_it_works(begin, _end_all)
    _end_all()


def _new_group(desk: Desk, victim: Victim) -> None:
    desk.init(desk.address())
    groups: list[Any] = []

    def begin() -> Any:
        groups.append(victim(lambda: dist.new_group(timeout=desk.timeout_s)))
        return groups[-1]

    def end() -> None:
        while groups:
            with contextlib.suppress(dist.DistError):
                dist.destroy_process_group(groups.pop())

    _until_it_works(begin, end)
    end()
    _works()
    _end_all()


def _destroy_group(desk: Desk, victim: Victim) -> None:
    desk.init(desk.address())
    group = dist.new_group(timeout=desk.timeout_s)
    _works(group)
    for _ in range(2):
        with contextlib.suppress(Interrupted, Stopped, ValueError, dist.GroupAbortedError, dist.PeerDiedError):
            victim(lambda: dist.destroy_process_group(group))
            break
    _works()
    _works(dist.new_group(timeout=desk.timeout_s))
    _end_all()


def _destroy_all(desk: Desk, victim: Victim) -> None:
    desk.init(desk.address())
    _works(dist.new_group(timeout=desk.timeout_s))
    for _ in range(2):
        with contextlib.suppress(Interrupted, Stopped, ValueError, dist.GroupAbortedError, dist.PeerDiedError):
            victim(dist.destroy_process_group)
            break
    if dist.is_initialized():
        raise Wrong("an interrupted destroy_process_group, made again, has left a group")
    desk.init(desk.address())
    _works()
    _end_all()


BEGINNINGS: dict[str, Callable[[Desk, Victim], None]] = {
    "init_process_group": _init,
    "new_group": _new_group,
    "destroy a group": _destroy_group,
    "destroy all": _destroy_all,
}


def run_beginning_points(
    backend: str, points: int, seed: int, cases: list[str], seconds: float = 1e9, slowness: float = 1.0
) -> Tally:
    """Interrupt beginnings and ends at random points; both ranks of a world call this, and both get the same.

    Args:
        backend: The backend.
        points: How many.
        seed: What decides all that is random.
        cases: Which, by their names.
        seconds: After so long no new point is begun.
        slowness: How many times as long as on an idle machine all may take.
    """
    rank = next(int(os.environ[name]) for name in _RANK if name in os.environ)
    checks, chance, lengths = Checks(), random.Random(seed), dict[str, int]()
    checks.spare(__file__)
    unraisable(checks)
    counts = dict.fromkeys(("went on", "not raised"), 0)
    until = time.monotonic() + seconds
    # The ranks of a pool have one parent, and this is to be told from what a former one has left.
    control = dist.FileStore(f"{tempfile.gettempdir()}/rankwise-beginnings-{os.getppid()}-{seed}")
    timeout_s = _TIMEOUT_S * slowness
    control.set_timeout(3 * timeout_s)
    for number in range(points):
        case, chosen, at = chance.choice(cases), chance.randrange(2), chance.random()
        late, checks.kind = chance.choice((0.0, 0.0, 0.05)), chance.choice((Interrupted, Stopped))
        desk = Desk(backend, control, rank, f"point {number}", timeout_s)
        victim = Victim(checks, at, lengths, case, chosen == rank, late)
        ended, began = "ok", time.monotonic()
        try:
            BEGINNINGS[case](desk, victim)
        except BaseException as error:
            checks.disarm()
            ended = "".join(traceback.format_exception(error))
        took_s = time.monotonic() - began
        with contextlib.suppress(BaseException):
            if ended != "ok" and dist.is_initialized():
                dist.destroy_process_group()
        told = Desk(backend, control, rank, f"end of point {number}").tell(
            (ended, victim.was, checks.where, took_s, time.monotonic() > until)
        )
        if any(each[0] != "ok" for each in told) or max(each[3] for each in told) > timeout_s / 2:
            said = [f"after {each[3]:.1f} s: {each[0]}" for each in told]
            name = f"{case} (point {number} of seed {seed})"
            wrong = Point(name, chosen, told[chosen][2], "it has not come to its end as it should", said)
            return Tally(counts["went on"], 0, counts["not raised"], wrong)
        counts["went on" if told[chosen][1] else "not raised"] += 1
        if any(each[4] for each in told):
            break
    return Tally(counts["went on"], 0, counts["not raised"], None)
