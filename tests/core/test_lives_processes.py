"""The life of a world, over real processes and every way to meet, with the third-party example as backend."""

import contextlib
import gc
import os
import re
import signal
import sys
import threading
import time
import weakref
from functools import partial

import numpy as np
import pytest
from tests import warm
from tests.busy_machine import slowness
from tests.by_reference import command, returned
from tests.processes import free_port, held, wait_until
from tests.ranks import begin, pool_of, rank_and_size, use_mesh
from tests.threads import within

import rankwise as dist
from rankwise.basics.deadline import Deadline
from rankwise.groups import handshake
from rankwise.groups.world import current

PATIENCE_S = 30.0
LEEWAY_S = 2.5


def join(address):
    """Begin a world of all ranks; return this one and how many there are."""
    use_mesh()
    rank, size = rank_and_size()
    dist.init_process_group("mesh", address, rank=rank, world_size=size, timeout=30)
    return rank, size


def total():
    array = np.ones(3)
    dist.all_reduce(array)
    return float(array[0])


pool = pool_of(4)


def live_again_and_again(address, lives):
    before = None
    for life in range(lives):
        rank, size = join(address)
        assert total() == size
        group = dist.new_group(list(range(size))[::-1], sort_ranks=False)
        array = np.array([rank])
        dist.broadcast(array, group_src=0, group=group)
        assert array[0] == size - 1
        if life % 2:
            dist.destroy_process_group(group)
        dist.destroy_process_group()
        if life == 1:
            before = held()
    # A thread that has ended may take a moment to leave the kernel's list.
    return before, wait_until(lambda: all(map(int.__le__, held(), before)), LEEWAY_S), held()


def test_worlds_begin_and_end_again_and_again_at_one_address(pool, address):
    for before, no_more, after in pool.run(live_again_and_again, address, 12):
        assert no_more, (before, after)


def live_without_a_garbage_collector(address):
    """Return what of a life is still there once it has ended."""
    gc.disable()
    try:
        join(address)
        total()
        world = current()
        held = {name: weakref.ref(getattr(world, name)) for name in ("default", "owned_store", "recorder", "watcher")}
        dist.destroy_process_group()
        return [name for name, thing in held.items() if thing() is not None]
    finally:
        gc.enable()


def test_no_part_of_a_life_waits_for_the_garbage_collector(pool, tcp_address):
    assert pool.run(live_without_a_garbage_collector, tcp_address) == [[]] * 4


def meet_in_the_environment(port):
    use_mesh()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("mesh", timeout=30)
    assert (dist.get_rank(), dist.get_world_size()) == rank_and_size()
    result = total()
    dist.destroy_process_group()
    return result


def test_the_environment_is_enough(pool):
    assert pool.run(meet_in_the_environment, free_port()) == [4.0] * 4


def init_as(address, ranks, sizes, timeout):
    use_mesh()
    me = rank_and_size()[0]
    return None if ranks[me] is None else begin("mesh", address, timeout, ranks[me], sizes[me])


def test_a_rank_that_does_not_come_is_named_to_all_that_do(pool, tcp_address):
    told = [t for t in pool.run(init_as, tcp_address, [0, 1, None, 3], [4] * 4, 1.0) if t]
    assert len(told) == 3
    for kind, text, took_s in told:
        assert (kind, "rank 2 of 4 did not come within 1 s" in text) == ("DistTimeoutError", True), text
        assert took_s < LEEWAY_S


def test_processes_that_claim_one_rank_are_named_to_all(pool, tcp_address):
    for kind, text, took_s in pool.run(init_as, tcp_address, [0, 1, 2, 2], [4] * 4, 10.0):
        assert kind == "RendezvousError"
        assert text.count("rank 2 (host ") == 2
        assert took_s < 2 * LEEWAY_S


def test_world_sizes_that_disagree_are_named_to_all(pool, tcp_address):
    for kind, text, _ in pool.run(init_as, tcp_address, [0, 1, 2, 3], [4, 4, 4, 5], 10.0):
        assert kind == "RendezvousError"
        assert "world_size is 4 for" in text or "world_size is 5 for" in text


def begin_with_a_dying_rank(address, victim, has_come, absent=()):
    """Let a rank die before it comes, or once all but the absent have come and wait; return what the others hear."""
    use_mesh()
    rank, size = rank_and_size()
    if rank in absent:
        return None
    if rank == victim and not has_come:
        os._exit(3)
    if rank == victim:
        handshake._verdict = partial(die_once_they_have_come, size - len(absent))
    return begin("mesh", address, 20 if has_come else 1)


def die_once_they_have_come(count, store, *_):
    # Not by `wait_for`, which takes a group's store: in the place of the meeting it finds that all have left.
    deadline = Deadline(20)
    store.add("come", 1)
    while int(store.peek("come") or b"0") < count and not deadline.expired():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("victim", "pattern"),
    [
        (2, "^timed out: init_process_group: rank 2 of 4 did not come within 1 s$"),
        (0, r"nobody listens there \(for \S+ s\), where rank 0 is to serve the store$"),
    ],
)
def test_a_rank_that_dies_before_it_comes_is_named_by_the_time_out(pool, tcp_address, victim, pattern):
    told = [t for t in pool.run(begin_with_a_dying_rank, tcp_address, victim, False, doomed=[victim]) if t]
    assert len(told) == 3
    for kind, text, took_s in told:
        assert kind == "DistTimeoutError"
        assert re.search(pattern, text), text
        assert took_s < 2 * LEEWAY_S


@pytest.mark.parametrize(
    ("victim", "expected", "pattern"),
    [
        # Where its parent has been told of the end already, only that is known.
        (2, "PeerDiedError", "^rank 2 on .* is gone: its process (was killed by SIGKILL|has ended), during init"),
        (0, "DistNetworkError", "^init_process_group: rank 0, which served the store, is gone: "),
    ],
)
def test_a_rank_that_dies_while_all_wait_for_another_is_named_at_once(pool, tcp_address, victim, expected, pattern):
    told = [t for t in pool.run(begin_with_a_dying_rank, tcp_address, victim, True, [3], doomed=[victim]) if t]
    assert len(told) == 2
    for kind, text, took_s in told:
        assert kind == expected, text
        assert re.search(pattern, text), text
        assert took_s < 4 * LEEWAY_S  # the time-out is 20 s


def leave_early(address):
    """Let the rank that hosts the store leave at once, while the others may still be coming."""
    for _ in range(5):
        time.sleep(0.01 * rank_and_size()[0])
        join(address)
        dist.destroy_process_group()
    return True


def test_the_host_of_the_store_may_leave_at_once(pool, tcp_address):
    assert pool.run(leave_early, tcp_address) == [True] * 4


def wait_for_a_rank_that_is_late(address):
    rank, _ = join(address)
    late = None
    if rank != 2:
        with pytest.raises(dist.DistTimeoutError) as caught:
            dist.monitored_barrier(timeout=0.5, wait_all_ranks=True)
        late = str(caught.value)
    dist.barrier()
    dist.destroy_process_group()
    return late


def test_a_monitored_barrier_tells_every_rank_who_is_missing(pool, tcp_address):
    said = pool.run(wait_for_a_rank_that_is_late, tcp_address)
    assert said[2] is None
    assert len({text for text in said if text}) == 1
    assert "rank 2 of 4 did not come within 0.5 s" in said[0]


def end_as_told(port, rank, way):
    """Join a world, end in one's own way without destroying it, and say when that was."""
    use_mesh()
    dist.init_process_group("mesh", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2, timeout=20)
    dist.all_reduce(np.ones(1))
    kept = globals()[way]()
    vars(sys.modules[__name__])["kept"] = kept
    return time.monotonic()


def leave(*ways):
    """Run two ranks that end in their own ways; return exit codes and how long they took after their last line."""
    port, outcomes = free_port(), []
    processes = [warm.start(command(end_as_told, port, rank, way.__name__)[1:]) for rank, way in enumerate(ways)]
    for process in processes:
        out, err = process.communicate(timeout=PATIENCE_S)
        outcomes.append((process.returncode, time.monotonic() - returned(out) if out else None, err))
    return outcomes


def simply():
    """Do nothing more."""


def pending():
    return dist.all_reduce(np.ones(1), async_op=True)


def interrupted():
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()
    with within(LEEWAY_S * slowness()), contextlib.suppress(KeyboardInterrupt):
        dist.barrier()
    with pytest.raises(dist.GroupAbortedError, match="KeyboardInterrupt"):
        dist.barrier()


def late():
    time.sleep(1)


@pytest.mark.parametrize("way", [simply, pending])
def test_a_process_that_ends_without_destroy_neither_hangs_nor_complains(way):
    for code, took_s, complaints in leave(way, simply):
        assert code == 0, complaints
        assert way is pending or complaints == ""
        assert took_s < 2 * LEEWAY_S


def test_an_interrupt_reaches_a_rank_that_waits():
    (first, _, said), _ = leave(interrupted, late)
    assert (first, said) == (0, "")
