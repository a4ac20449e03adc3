"""What a death does to the groups of the dead: it ends what needs the dead rank, and nothing that does not."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest
from tests.processes import idle_process, needs_descriptors

from rankwise.backends.communicator import Communicator
from rankwise.backends.contract import Context
from rankwise.basics.work import Work
from rankwise.collective.call import Call
from rankwise.errors import DistError, GroupAbortedError, PeerDiedError
from rankwise.groups.handshake import process_space, started_at
from rankwise.groups.world import World
from rankwise.store import HashStore, PrefixStore
from rankwise_watch.verdict import Log, Verdict
from rankwise_watch.watcher import Watcher

PATIENCE_S = 10.0

pytestmark = needs_descriptors


class Silent(Communicator):
    """A communicator whose operations end when the test says so."""

    def __init__(self, ranks: tuple[int, ...], sees_to_it: bool) -> None:
        super().__init__(Context("dp", ranks.index(0), len(ranks), ranks, 60.0))
        self._sees_to_it = sees_to_it
        self.deaths: list[tuple[int, DistError]] = []
        self.heard, self.ended = threading.Semaphore(0), threading.Event()
        self.ended_at = 0.0

    def peer_died(self, rank: int, error: DistError) -> bool:
        self.deaths.append((rank, error))
        self.heard.release()
        return self._sees_to_it

    def isend(self, *terms: Any) -> Any:
        """Never called."""

    irecv = close = isend

    def abort(self, error: DistError) -> None:
        self.ended_at = monotonic()
        self.ended.set()

    def compare_and_run(self, call: Call, algorithm: Callable[[], object], sequence: int, deadline: object) -> None:
        algorithm()

    def begin(self, body: Callable[[], object]) -> Work:
        """Begin a collective that lasts as long as `body`."""
        return self.issue(call := Call("barrier"), self.once(call, body), 60.0, async_op=True)


class Group:
    """As much of a group as the watcher looks at."""

    def __init__(self, communicator: Communicator) -> None:
        self.name, self.ranks = communicator.context.name, communicator.context.global_ranks
        self.rank_of = {rank: index for index, rank in enumerate(self.ranks)}
        self._communicator = communicator

    def communicators(self) -> list[Communicator]:
        return [self._communicator]


class Scene:
    """A watcher of rank 0, and processes for the other ranks."""

    def __init__(self, *others: subprocess.Popen[bytes]) -> None:
        self.store, self.world, self.others = HashStore(), World(), dict(enumerate(others, 1))
        seats = [{"host": "h", "pid": os.getpid()}]
        for process in self.others.values():
            own = {"space": process_space(), "started": started_at(process.pid)}
            seats.append({"host": "h", "pid": process.pid, **own})
        self.watcher = Watcher(self.world, self.store, 0, range(3), dict)
        self.watcher.everyone_is_here([json.dumps(seat).encode() for seat in seats])
        self.watcher.ask(dict, PATIENCE_S)

    def join(self, communicator: Silent) -> Silent:
        self.world.groups[communicator.context.name] = Group(communicator)  # type: ignore[assignment]
        return communicator

    def kill(self, rank: int, told: Silent | None = None) -> None:
        """Kill a rank; somebody may have to be told of it."""
        self.others[rank].kill()
        self.others[rank].wait()
        assert told is None or told.heard.acquire(timeout=PATIENCE_S)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with idle_process() as first, idle_process() as second:
        made = Scene(first, second)
        yield made
        made.watcher.stop()


def test_a_communicator_that_knows_whom_it_waits_for_is_told_and_not_ended(scene: Scene) -> None:
    communicator = scene.join(Silent((2, 0, 1), sees_to_it=True))
    scene.kill(1, communicator)
    ((rank, error),) = communicator.deaths
    assert isinstance(error, PeerDiedError)
    assert (rank, error.rank) == (2, 1)
    assert not communicator.ended.wait(0.3)  # longer than any other is given
    assert communicator.failure is None


def test_who_gives_the_group_up_afterwards_raises_the_death(scene: Scene) -> None:
    """As one does who has noticed it first, and shrinks the group already."""
    communicator = scene.join(Silent((2, 0, 1), sees_to_it=True))
    scene.kill(1, communicator)
    aborted = Verdict("dp", GroupAbortedError("group 'dp' was aborted on rank 2 by shrink_group"))
    log = Log(PrefixStore("watch", scene.store), 2, lambda verdict: None)
    log.catch_up()
    log.settle(aborted, "dp", (0, 1, 2))
    assert communicator.ended.wait(PATIENCE_S)
    assert isinstance(communicator.failure, PeerDiedError)
    assert communicator.failure.rank == 1
    late = scene.watcher.settle(communicator.context, GroupAbortedError("another"))
    assert str(late) == str(communicator.failure)


def test_each_death_is_told(scene: Scene) -> None:
    communicator = scene.join(Silent((2, 0, 1), sees_to_it=True))
    for victim in (1, 2):
        scene.kill(victim, communicator)
    assert [rank for rank, _ in communicator.deaths] == [2, 0]


def test_any_other_is_given_up_at_once(scene: Scene) -> None:
    communicator = scene.join(Silent((0, 1), sees_to_it=False))
    scene.kill(1)
    assert communicator.ended.wait(PATIENCE_S)
    assert isinstance(communicator.failure, PeerDiedError)


def test_but_a_collective_that_is_running_may_still_end(scene: Scene) -> None:
    communicator = scene.join(Silent((0, 1), sees_to_it=False))
    began, go_on = threading.Event(), threading.Event()
    work = communicator.begin(lambda: (began.set(), go_on.wait(PATIENCE_S)))
    assert began.wait(PATIENCE_S)
    scene.kill(1, communicator)
    go_on.set()
    assert work.wait(PATIENCE_S)
    assert communicator.ended.wait(PATIENCE_S)


def test_and_one_that_does_not_end_is_given_up_soon(scene: Scene) -> None:
    communicator = scene.join(Silent((0, 1), sees_to_it=False))
    began = threading.Event()
    communicator.begin(lambda: (began.set(), communicator.ended.wait(PATIENCE_S)))
    assert began.wait(PATIENCE_S)
    scene.kill(1, communicator)
    heard_at = monotonic()
    assert communicator.ended.wait(PATIENCE_S)
    assert 0.0 < communicator.ended_at - heard_at < 1.0


def test_a_group_without_the_dead_rank_hears_nothing(scene: Scene) -> None:
    communicator = scene.join(Silent((0, 2), sees_to_it=False))
    scene.kill(1)
    scene.kill(2)
    assert communicator.heard.acquire(timeout=PATIENCE_S)
    assert [rank for rank, _ in communicator.deaths] == [1]


def test_a_rank_that_is_merely_silent_ends_the_whole_group(scene: Scene) -> None:
    communicator = scene.join(Silent((0, 1), sees_to_it=True))
    hung = Verdict("", PeerDiedError(1, "h", "hung: its process is there; no heartbeat for more than 5 s"))
    Log(PrefixStore("watch", scene.store), 2, lambda verdict: None).settle(hung, "dp", (0, 1))
    assert communicator.ended.wait(PATIENCE_S)
    assert communicator.deaths == []


def test_a_certain_death_is_certain_to_those_who_read_of_it() -> None:
    store, heard = HashStore(), list[Verdict]()
    death = Verdict("", PeerDiedError(1, "h", "its process was killed by SIGKILL"), is_certain=True)
    Log(store, 0, lambda verdict: None).settle(death, "dp", (0, 1))
    Log(store, 1, heard.append).catch_up()
    assert [(verdict.is_certain, str(verdict.error)) for verdict in heard] == [(True, str(death.error))]
