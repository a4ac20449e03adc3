"""The harness: functions on processes, and what becomes of them."""

import os
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
from tests.by_reference import command
from tests.processes import alive, wait_until
from tests.ranks import pool_of, use_mesh
from tests.threads import none_left, within

import rankwise as dist
from rankwise.backends import compiled_parts
from rankwise.errors import DistTimeoutError, PeerDiedError
from rankwise_testing import RankFailedError, RankPool, origins, run_ranks
from rankwise_testing.origins import kept_origins

PATIENCE_S = 20.0
LEEWAY_S = 2.0


def rank():
    return int(os.environ["RANK"])


@pytest.fixture(scope="module", autouse=True)
def nothing_is_kept():
    """Have pools end what their ranks are forked from, as they do unless it is asked for."""
    with kept_origins(0):
        yield


pool = pool_of(3)


def place():
    return [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")]


def test_every_rank_knows_its_place(pool):
    assert pool.run(place) == [[str(r), str(r), "3", "3", "127.0.0.1"] for r in range(3)]


def double(array, *, by=2):
    return array * by + rank()


def test_arguments_and_results_travel(pool):
    for r, array in enumerate(pool.run(double, np.arange(3))):
        np.testing.assert_array_equal(array, np.arange(3) * 2 + r)


def test_the_first_ranks_may_run_alone(pool):
    assert pool.run(rank, size=2) == [0, 1]


def fail(on):
    if rank() == on:
        raise KeyError("lost")
    return rank()


def test_an_error_comes_home_with_its_traceback_and_the_processes_live_on(pool):
    before = pool.run(os.getpid)
    with pytest.raises(RankFailedError, match=r"rank 1 of 3 failed: KeyError: 'lost'") as caught:
        pool.run(fail, 1)
    assert caught.value.rank == 1
    assert set(caught.value.errors) == {1}
    assert isinstance(caught.value.__cause__, KeyError)
    assert "in fail" in str(caught.value.__cause__.__cause__)
    assert pool.run(os.getpid) == before


def make_group_alone(address, failing):
    dist.init_process_group("gloo", address, rank=rank(), world_size=3, timeout=20)
    if rank() == failing:
        raise KeyError("lost")
    dist.new_group([0, 1, 2])
    dist.destroy_process_group()


def test_who_waits_for_a_failed_rank_to_make_a_group_is_stopped_for_this_time(pool, tmp_path):
    before = pool.run(os.getpid)
    with within(LEEWAY_S), pytest.raises(RankFailedError, match="rank 1 of 3 failed: KeyError"):
        pool.run(make_group_alone, f"file://{tmp_path}/first", 1)
    pool.run(make_group_alone, f"file://{tmp_path}/second", None)
    assert pool.run(os.getpid) == before


class AwkwardError(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one}{two}")


def raise_what_cannot_be_pickled():
    raise AwkwardError("a", "b")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (raise_what_cannot_be_pickled, "AwkwardError: ab"),
        (threading.current_thread, "cannot be brought home"),
        (sys.exit, "SystemExit"),
    ],
)
def test_what_cannot_come_home_is_told_in_words_and_ends_no_process(pool, function, words):
    before = pool.run(os.getpid)
    with pytest.raises(RankFailedError, match=words):
        pool.run(function)
    assert pool.run(os.getpid) == before


def test_functions_must_be_found_by_their_name(pool):
    with pytest.raises(ValueError, match="top level"):
        pool.run(lambda: 1)


def die():
    if rank() == 1:
        print("my last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return rank()


def test_a_process_that_dies_is_told_with_what_it_printed_last(pool):
    with pytest.raises(RankFailedError, match=r"rank 1 of 3 failed.*killed by SIGKILL") as caught:
        pool.run(die)
    assert isinstance(caught.value.__cause__, PeerDiedError)
    assert "my last words" in str(caught.value)
    assert pool.run(rank) == [0, 1, 2]


def test_a_process_that_is_doomed_may_die(pool):
    assert pool.run(die, doomed=[1]) == [0, None, 2]
    assert pool.run(rank) == [0, 1, 2]


def loiter(on, folder):
    if rank() == on:
        child = subprocess.Popen(["sleep", "100"])
        with open(os.path.join(folder, "child"), "w", encoding="utf-8") as file:
            file.write(str(child.pid))
        child.wait()


def test_a_time_out_shows_the_stacks_and_kills_even_grandchildren(pool, tmp_path):
    before = pool.run(os.getpid)
    with pytest.raises(DistTimeoutError, match=r"rank 2 of 3 did not return within 1 s") as caught:
        pool.run(loiter, 2, str(tmp_path), timeout=1)
    assert "rank 2 is here:" in str(caught.value)
    assert "in loiter" in str(caught.value)
    grandchild = int((tmp_path / "child").read_text())
    assert wait_until(lambda: not any(map(alive, [*before, grandchild])), LEEWAY_S)
    assert pool.run(rank) == [0, 1, 2]


def speak():
    print("hello from", rank())


def test_what_ranks_print_is_shown(pool, capsys):
    pool.run(speak)
    assert sorted(capsys.readouterr().out.splitlines()) == [f"hello from {r}" for r in range(3)]


def test_variables_may_name_the_rank():
    with RankPool(2, env={"SOME_PLACE": "host-{rank}"}) as pool:
        assert pool.run(os.getenv, "SOME_PLACE") == ["host-0", "host-1"]
        # What a rank has loaded may depend on it, so that it is forked from no other process.
        assert {parent for parent, _ in pool.run(parent_and_modules)} == {os.getpid()}


def meet():
    use_mesh()
    dist.init_process_group("mesh", timeout=30)
    array = np.array([rank() + 1])
    dist.all_reduce(array)
    dist.destroy_process_group()
    return int(array[0])


def test_the_ranks_can_meet_through_their_environment():
    """The port in MASTER_PORT is free for rank 0, in one life after another."""
    with RankPool(2) as pool:
        for _ in range(3):
            assert pool.run(meet) == [3, 3]


def test_a_launcher_may_start_the_processes(tmp_path):
    launcher = tmp_path / "mpiexec.py"
    launcher.write_text(
        "import os, subprocess, sys\n"
        "size, command = int(sys.argv[1]), sys.argv[2:]\n"
        "place = lambda r: {**os.environ, 'OMPI_COMM_WORLD_RANK': str(r), 'OMPI_COMM_WORLD_SIZE': str(size)}\n"
        "ranks = [subprocess.Popen(command, env=place(r)) for r in range(size)]\n"
        "sys.exit(max(process.wait() for process in ranks))\n"
    )
    with RankPool(2, launch=(sys.executable, str(launcher), "{size}")) as pool:
        assert pool.run(os.getenv, "OMPI_COMM_WORLD_RANK") == ["0", "1"]
        assert pool.run(os.getenv, "RANK") == [None, None]
        pids = pool.run(os.getpid)
        with pytest.raises(RankFailedError, match="rank 1 of 2"):
            pool.run(fail_by_launcher_rank)
    assert wait_until(lambda: not any(map(alive, pids)), LEEWAY_S)


def fail_by_launcher_rank():
    if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
        raise KeyError("lost")


@pytest.mark.parametrize(
    ("launch", "error", "words"),
    [
        (("no-such-launcher",), FileNotFoundError, "no-such-launcher"),
        ((sys.executable, "-c", "raise SystemExit('out of order')"), ChildProcessError, "out of order"),
    ],
)
def test_processes_that_cannot_start_are_named_or_told_with_what_they_printed(launch, error, words):
    with pytest.raises(error, match=words), RankPool(1, launch=launch) as pool:
        pool.run(rank)


def test_a_function_runs_on_fresh_processes():
    assert run_ranks(rank, 2) == [0, 1]
    assert run_ranks(os.getpid, 1) != run_ranks(os.getpid, 1)


def parent_and_modules():
    return os.getppid(), sorted({"rankwise.groups.lifecycle", "zmq"} & set(sys.modules))


@pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux alone")
def test_ranks_are_forked_from_a_process_that_has_loaded_what_they_need(monkeypatch):
    with RankPool(2) as pool:
        first, second = pool.run(parent_and_modules)
        assert first == second
        assert first[0] != os.getpid()
        assert len(first[1]) == 2
        monkeypatch.setenv("ANOTHER", "value")
        pool._kill()  # as after a failure; what is started then has the environment of then
        (parent, _), _ = pool.run(parent_and_modules)
        assert parent != first[0]
        assert pool.run(os.getenv, "ANOTHER") == ["value"] * 2
    assert not alive(first[0])
    assert not alive(parent)


def test_pools_of_one_environment_may_share_what_their_ranks_are_forked_from_one_after_another():
    def parent(**env):
        return run_ranks(parent_and_modules, 1, env=env)[0][0]

    with kept_origins(1):
        first = parent()
        assert parent() == first != os.getpid()
        os.kill(first, signal.SIGKILL)
        assert wait_until(lambda: not alive(first), LEEWAY_S)
        with RankPool(1) as one, RankPool(1) as other:  # at a time each has its own
            assert one.run(parent_and_modules) != other.run(parent_and_modules)
        second = parent()
        third = parent(ANOTHER="value")
        assert len({first, second, third}) == 3
        assert run_ranks(parent_and_modules, 1, env={"ANOTHER": "value"}, fork=False)[0][0] == os.getpid()
        assert not alive(second)
    assert not alive(third)


def test_what_modules_read_as_they_are_loaded_may_name_the_rank():
    with RankPool(2, env={compiled_parts.VARIABLE: "{rank}"}) as pool:
        assert ["turned off" in text for _, text in pool.run(compiled_parts.state)] == [True, False]


def test_ranks_are_started_one_by_one_where_modules_start_threads(monkeypatch, tmp_path):
    (tmp_path / "of_threads.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(origins, "_LOADED", (*origins._LOADED, "of_threads"))
    assert {parent for parent, _ in run_ranks(parent_and_modules, 2)} == {os.getpid()}


def test_nothing_is_left_behind():
    descriptors = len(os.listdir("/proc/self/fd"))
    with none_left(PATIENCE_S):
        for _ in range(3):
            run_ranks(rank, 2)
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def stand_ready():
    pool = RankPool(1)
    print(pool.run(os.getpid)[0], flush=True)
    sys.stdin.read()


def test_the_processes_end_with_their_parent_and_leave_nothing(tmp_path):
    pipe, env = subprocess.PIPE, {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command(stand_ready), stdin=pipe, stdout=pipe, text=True, env=env) as process:
        pid = int(process.stdout.readline())
        process.kill()
    assert wait_until(lambda: not alive(pid), LEEWAY_S)
    assert not list(tmp_path.iterdir())


def test_nobody_else_can_talk_to_the_processes(pool):
    """The socket is in a folder of the user's own, and a process that connects must know the key."""
    processes = pool._ready()
    folder = processes._directory
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "key").stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as stranger, pytest.raises(OSError, match="refused"):
        stranger.connect(str(folder / "socket"))
