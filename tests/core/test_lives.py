"""A store that outlives its processes, as a launcher's does: a new attempt in it is a new life."""

import contextlib
import os
import signal
import threading

import pytest
from tests import warm
from tests.by_reference import command, returned

import rankwise as dist

PATIENCE_S = 60.0


def _attempt(port, rank, dies):
    """Be one rank of an attempt."""
    store = dist.TCPStore("127.0.0.1", port)
    if dies == "before":  # all have come
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGKILL)).start()
    group = dist.ProcessGroup.create(store=store, rank=rank, size=2, name="job", backend="gloo", timeout=30)
    dist.barrier(group)
    if dies == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    dist.destroy_process_group(group)
    return "done"


@contextlib.contextmanager
def _ranks(port, dies, ranks):
    """Start ranks one after the other."""
    started = []
    try:
        for rank in ranks:
            started.append(warm.start(command(_attempt, port, rank, dies)[1:]))
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("dies", "came"), [("after", (0, 1)), ("before", (0,)), ("before", (1,))])
def test_a_new_attempt_succeeds(dies, came, order):
    """After the death of all of a group, or of some that waited for the others; again and again."""
    with dist.TCPStore("127.0.0.1", 0, is_master=True) as store:
        for _ in range(2):
            with _ranks(store.port, dies, came) as dead:
                assert [process.wait(PATIENCE_S) for process in dead] == [-signal.SIGKILL] * len(came)
        with _ranks(store.port, "never", order) as alive:
            found = [process.communicate(timeout=PATIENCE_S) for process in alive]
    assert [out and returned(out) for out, _ in found] == ["done"] * 2, found


def test_two_that_live_still_claim_one_rank():
    """And are told so."""
    with dist.TCPStore("127.0.0.1", 0, is_master=True) as store, _ranks(store.port, "never", (1, 1)) as both:
        errors = [process.communicate(timeout=PATIENCE_S)[1] for process in both]
    assert all("two processes claim rank 1" in error for error in errors), errors
