"""What an interrupt leaves of the parts that the main thread shares with others, wherever it comes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic, sleep
from types import FrameType
from typing import Any

import pytest
from interrupt_checks import Checks, Interrupted, unraisable

import rankwise as dist
from rankwise.backends import Deadline, FutureWork, Mailbox, WorkFuture
from rankwise.collective.issue_order import IssueOrder
from rankwise_gloo_tcp.engine.progress import Changed
from rankwise_testing import run_ranks
from rankwise_watch.background import Background

#: More points than any of these calls has.
MOST_POINTS = 2000
PATIENCE_S = 10.0


def interrupt_everywhere(call: Callable[[], object], look: Callable[[], object], checks: Checks | None = None) -> int:
    """Make a call that is interrupted at its first, second, ... point, and look after each; return how many it has."""
    checks = checks or Checks()
    checks.spare(__file__)
    unraisable(checks)
    for at in range(1, MOST_POINTS):
        checks.arm(at)
        try:
            call()
            return at - 1
        except Interrupted:
            pass
        finally:
            checks.disarm()
        look()  # when the traceback holds nothing of the call any more
    raise AssertionError("the call has too many points")


class Silent(Background):
    """A thread that does nothing but what it is asked."""

    def round(self, late_s: float) -> None:
        """Do nothing."""

    def farewell(self) -> None:
        """Do nothing."""


def ask_the_watcher() -> int:
    thread = Silent(1e6, 1e6)
    thread.begin()

    def look() -> None:
        assert thread.ask(lambda: "there", PATIENCE_S) == "there"

    points = interrupt_everywhere(lambda: thread.ask(lambda: 1, PATIENCE_S), look)
    thread.stop()
    return points


def abort_an_engine() -> int:
    dist.init_process_group("gloo", timeout=20)
    engine: Any = dist.group.WORLD.communicators()[0].engine  # type: ignore[union-attr, attr-defined]

    def look() -> None:
        assert not engine.lock.locked()

    points = interrupt_everywhere(lambda: engine.abort(dist.GroupAbortedError("enough")), look)
    dist.destroy_process_group()
    return points


def fail_a_mailbox() -> int:
    box = Mailbox()

    def look() -> None:
        assert box.withdraw(None) is False  # type: ignore[arg-type]
        assert not box._lock.locked()

    return interrupt_everywhere(lambda: box.fail(dist.GroupAbortedError("enough")), look)


def ask_a_future() -> int:
    """The thread that ends a work tells its future, which the main thread may have been asking just then."""
    made: list[tuple[FutureWork, WorkFuture]] = []

    def renew() -> None:
        work = FutureWork()
        made[:] = [(work, WorkFuture(work, lambda: 3))]

    def end() -> None:
        work, future = made[0]
        thread = threading.Thread(target=lambda: (work.succeed(), future.end()), daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert future.result(PATIENCE_S) == 3
        assert not thread.is_alive()
        renew()

    renew()
    points = interrupt_everywhere(lambda: made[0][1].done(), end)
    points += interrupt_everywhere(lambda: made[0][1].add_done_callback(bool), end)
    return points + interrupt_everywhere(lambda: (made[0][0].succeed(), made[0][1].result()), end)


def issue_an_operation() -> int:
    """The thread that serves the line is asleep, and must hear of its end whatever became of the call."""
    made: list[IssueOrder] = []

    def renew() -> None:
        made[:] = [IssueOrder("line")]
        made[0].later("first", lambda: None, Deadline(PATIENCE_S), lambda error: error).wait()
        until = monotonic() + PATIENCE_S
        while not made[0]._bells and monotonic() < until:
            sleep(0.001)

    def end() -> None:
        made[0].abort(dist.GroupAbortedError("enough"))
        thread = threading.Thread(target=made[0].close, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        renew()

    renew()
    return interrupt_everywhere(
        lambda: made[0].later("second", lambda: None, Deadline(PATIENCE_S), lambda error: error), end
    )


def tell_of_a_change() -> int:
    changed = Changed(threading.Lock())
    bells: list[threading.Lock] = []

    def look() -> None:
        changed.notify_all()
        assert not any(bell.locked() for bell in bells)
        bells[:] = [changed.bell() for _ in range(3)]

    look()
    return interrupt_everywhere(changed.notify_all, look)


class Watching(Checks):
    """Looks at every point."""

    def __init__(self, look: Callable[[], object]) -> None:
        super().__init__()
        self.look = look

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.look()
        super()._handle(number, frame)


def lend_connections() -> int:
    """No connection is anybody's and idle, at any point: another thread would take what this one has."""
    with dist.TCPStore("127.0.0.1", is_master=True) as store:
        pool: Any = store._pool
        twice: list[object] = []

        def look() -> None:
            lent = [connection for _, mine in pool._lenders for connection in mine]
            twice.extend(connection for connection in lent if connection in pool._idle)

        call, again = (lambda: store.set("key", "value")), (lambda: store.set("key", "again"))
        points = interrupt_everywhere(call, again, Watching(look))
        assert twice == []
        assert len(pool._idle) == 1
        return points


PROGRAMS = (
    *(ask_the_watcher, ask_a_future, abort_an_engine, fail_a_mailbox, lend_connections),
    *(issue_an_operation, tell_of_a_change),
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_interrupt_leaves_them_as_they_were(program: Callable[[], int]) -> None:
    assert all(points > 5 for points in run_ranks(program, 1))
