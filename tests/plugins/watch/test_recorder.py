"""The flight recorder: what it notes of each call, what it costs, and when it writes that down."""

from __future__ import annotations

import faulthandler
import gc
import inspect
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from tests.processes import wait_until
from tests.threads import on_ranks, run_local

import rankwise as dist
from rankwise.basics import native
from rankwise.basics.recording import make_recorder as compiled
from rankwise.groups.world import World, current
from rankwise_watch import dump
from rankwise_watch import recorder as recorders
from rankwise_watch.noting import PythonRecorder
from rankwise_watch.recorder import describe, progress
from rankwise_watch.stacks import stacks

TIMEOUT_S = 60

make_recorder = PythonRecorder if native.module() is None else compiled
HERE = os.path.basename(__file__)


def told(reason: str = "a test") -> dict[str, Any]:
    """Return this rank's record, as it would come out of a file."""
    return json.loads(json.dumps(dump.record(current(), reason)))


def line() -> int:
    """Return the caller's line."""
    return inspect.currentframe().f_back.f_lineno  # type: ignore[union-attr]


@on_ranks(2)
def test_every_call_is_noted_with_its_group_number_size_and_place() -> None:
    rank, array = dist.get_rank(), np.ones(4, np.float32)
    dist.all_reduce(array)
    where = line() - 1
    dist.broadcast(array, src=1)
    pair = dist.new_group([0, 1], group_desc="pair")
    dist.barrier(pair)
    if rank == 0:
        dist.send(array, 1, tag=7)
    else:
        dist.recv(array, tag=7)
    record = told()
    assert [(e["group"], e["op"], e["number"], e["nbytes"]) for e in record["entries"] if "tag" not in e] == [
        ("default", "all_reduce", 0, 16),
        ("default", "broadcast", 1, 16),
        ("group-1", "barrier", 0, 0),
    ]
    entry = record["entries"][0]
    assert (entry["file"], entry["line"]) == (__file__, where)
    assert entry["function"].startswith("test_every_call_is_noted")
    assert (entry["dtype"], entry["state"]) == ("float32", "done")
    assert 0 < entry["began_ns"] < entry["ended_ns"] < record["written_ns"]
    assert record["groups"]["group-1"]["description"] == "pair"
    assert record["groups"]["default"]["ranks"] == [0, 1]
    assert record["groups"]["default"]["begun"] == record["groups"]["default"]["finished"] == 1
    (message,) = (e for e in record["entries"] if "tag" in e)
    assert (message["op"], message["number"]) == ("recv" if rank else "send", 0)
    assert (message["peer"], message["tag"]) == (1 - rank, 7)  # of the one from anyone it is known who it was


@on_ranks(2)
def test_each_kind_of_call_is_noted_once_and_seen_to_end() -> None:
    rank, array, both = dist.get_rank(), np.ones(2, np.float32), np.ones(4, np.float32)
    parts = [np.ones(2, np.float32) for _ in range(2)]
    dist.reduce(array, 0)
    dist.all_gather(parts, array)
    dist.all_gather_single(both, array)
    dist.gather(array, parts if rank == 0 else None)
    dist.scatter(array, parts if rank == 0 else None)
    dist.reduce_scatter(array, parts)
    dist.reduce_scatter_single(array, both)
    dist.all_to_all([np.ones(2, np.float32) for _ in range(2)], parts)
    dist.all_to_all_single(np.ones(4, np.float32), both)
    with dist.coalescing():
        dist.all_reduce(array)
    swap = [dist.P2POp(dist.isend, array, 1 - rank), dist.P2POp(dist.irecv, both[:2], 1 - rank)]
    for work in dist.batch_isend_irecv(swap):
        work.wait()
    ops = "reduce all_gather all_gather gather scatter reduce_scatter reduce_scatter all_to_all all_to_all all_reduce"
    entries = told()["entries"]
    assert [entry["op"] for entry in entries] == [*ops.split(), "isend", "irecv"]
    assert {(entry["state"], entry["function"][:14]) for entry in entries} == {("done", "test_each_kind")}


@on_ranks(2)
def test_a_call_that_is_refused_is_not_counted() -> None:
    frozen = np.ones(4)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        dist.all_reduce(frozen)
    dist.barrier()
    assert [(e["op"], e["number"]) for e in told()["entries"]] == [("barrier", 0)]


@on_ranks(2)
def test_a_call_that_was_left_by_an_error_counts_as_failed() -> None:
    call = dist.barrier if dist.get_rank() == 0 else partial(dist.all_reduce, np.ones(1))
    with pytest.raises(dist.CollectiveMismatchError):
        call()
    assert told()["entries"][0]["state"] == "failed"


def late() -> dict[str, Any]:
    if dist.get_rank() == 0:
        with pytest.raises(dist.DistTimeoutError):
            dist.all_reduce(np.ones(1), timeout=0.05)
    return told()


def test_the_failure_of_a_group_is_kept_in_words() -> None:
    first, _ = run_local(2, late)
    assert first["entries"][0]["state"] == "failed"
    assert first["groups"]["default"]["failure"].startswith("DistTimeoutError: all_reduce #0")


def test_an_asynchronous_call_ends_when_it_is_waited_for_and_its_arrays_are_not_kept() -> None:
    looked = threading.Event()

    def program() -> tuple[list[str], bool]:
        array = np.ones(1 << 10)
        if dist.get_rank() == 1:
            assert looked.wait(TIMEOUT_S)
        work = dist.all_reduce(array, async_op=True)
        states = [told()["entries"][0]["state"]]
        looked.set()
        work.wait()
        states.append(told()["entries"][0]["state"])
        kept = weakref.ref(array)
        del array, work
        # The thread that ran it lets go a moment later.
        return states, wait_until(lambda: gc.collect() is not None and kept() is None, TIMEOUT_S)

    assert run_local(2, program)[0] == (["issued", "done"], True)


@on_ranks(2)
def test_the_last_finished_is_the_highest_in_whatever_order_they_are_waited_for() -> None:
    works = [dist.all_reduce(np.ones(1), async_op=True) for _ in range(3)]
    for work in reversed(works):
        work.wait()
    (group,) = progress(current().recorder).values()
    assert (group["begun"]["number"], group["finished"]["number"]) == (2, 2)


@on_ranks(2)
def test_the_error_of_an_asynchronous_operation_is_kept() -> None:
    work = dist.irecv(np.ones(1), 1 - dist.get_rank())
    dist.abort_process_group()
    with pytest.raises(dist.DistError):
        work.wait()
    entry = told()["entries"][0]
    assert entry["state"] == "failed"
    assert "GroupAbortedError" in str(entry) or "PeerDiedError" in str(entry)


@on_ranks(2)
def test_the_ring_keeps_the_last_1024_and_the_last_of_a_group_that_others_have_pushed_out() -> None:
    dist.new_group([0, 1], group_desc="quiet")
    dist.barrier(dist.new_group([0, 1]))
    for _ in range(1100):
        dist.barrier()
    record = told()
    numbers = [(e["group"], e["number"]) for e in record["entries"]]
    assert (len(numbers), numbers[:2]) == (1025, [("group-2", 0), ("default", 76)])
    assert record["groups"]["default"]["begun"] == 1099


def test_threads_do_not_end_each_others_operations() -> None:
    recorder = make_recorder()
    trail = recorder.trail("default", "default", (0,))
    inside, leave = threading.Event(), threading.Event()

    def slow() -> None:
        trail.begin("barrier")
        inside.set()
        assert leave.wait(TIMEOUT_S)
        trail.end()

    with ThreadPoolExecutor(1) as threads:
        slowly = threads.submit(slow)
        assert inside.wait(TIMEOUT_S)
        trail.begin("barrier")
        trail.end()
        first, second = recorder.entries()
        assert (first.ended_ns == 0, second.ended_ns == 0) == (True, False)
        leave.set()
        slowly.result(TIMEOUT_S)
    first, second = recorder.entries()
    assert first.ended_ns > second.ended_ns
    trail.end()  # an end without a beginning harms nobody
    assert [entry.number for entry in recorder.entries()] == [0, 1]


def test_any_thread_may_ask_for_progress_at_any_time() -> None:
    recorder = make_recorder()
    trail = recorder.trail("default", "default", (0,))
    stop, seen = threading.Event(), []
    assert progress(recorder) == {}  # nothing has been called on it

    def ask() -> None:
        while not stop.is_set():
            seen.append(progress(recorder)["default"])

    trail.begin("barrier")
    trail.end()
    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(ask)
        try:
            while len(seen) < 20 and not asking.done():
                trail.begin("barrier")
                trail.end()
        finally:
            stop.set()
    steps = [group["finished"] for group in seen]
    assert len(steps) >= 20
    assert [step["number"] for step in steps] == sorted(step["number"] for step in steps)


def test_one_look_at_the_threads_serves_all_ranks_of_a_process_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(recorders, "_recent", recorders._Recent())
    monkeypatch.setattr(recorders, "stacks", lambda: looks.append(1) or {})
    both = [make_recorder() for _ in range(2)]
    trails = [recorder.trail("default", "default", (0, 1)) for recorder in both]
    for trail in trails:
        trail.begin("barrier")
    for _ in range(5):  # heartbeats, in turns
        for recorder in both:
            progress(recorder)
    assert len(looks) == 1
    trails[0].begin("barrier")  # which began after the look
    for recorder in (*both, *both):
        progress(recorder)
    assert len(looks) == 2


def waiting(arrived: threading.Event, leave: threading.Event) -> dict[str, Any] | None:
    world = current()
    if dist.get_rank() == 0:
        arrived.set()
        dist.recv(np.ones(1), 1)
        dist.barrier()
        return None
    assert arrived.wait(TIMEOUT_S)
    assert leave.wait(TIMEOUT_S)
    dist.send(np.ones(1), 0)
    dist.barrier()
    return progress(world.recorder)["default"]  # type: ignore[return-value]


def test_progress_names_what_is_pending_and_where() -> None:
    arrived, leave, worlds = threading.Event(), threading.Event(), []

    def both() -> Any:
        if dist.get_rank() == 0:
            worlds.append(current())
        return waiting(arrived, leave)

    def look() -> Any:
        # The call is noted a moment after the rank has said that it is about to make it.
        while not (worlds and (pending := progress(worlds[0].recorder)["default"]["pending"])):
            time.sleep(0.001)
        leave.set()
        return pending

    with ThreadPoolExecutor(1) as threads:
        looking = threads.submit(look)
        _, second = run_local(2, both, timeout=TIMEOUT_S)
        (step,) = looking.result(TIMEOUT_S)
    where = inspect.getsourcelines(waiting)[1] + 4
    assert describe(step) == f"recv #0 from rank 1 at {HERE}:{where}"
    assert step["age_s"] >= 0
    assert second["pending"] == []
    assert describe(second["finished"]) == f"barrier #0 at {HERE}:{where + 6}"
    assert describe(second["message_finished"]) == f"send #0 to rank 0 at {HERE}:{where + 5}"
    assert json.loads(json.dumps(second)) == second


@pytest.mark.parametrize(
    ("op", "number", "peer", "message", "at", "text"),
    [
        ("broadcast", 16, None, False, "train.py:41", "broadcast #16 at train.py:41"),
        ("irecv", 3, None, True, "", "irecv #3 from anyone"),
        ("isend", 0, 4, True, "a.py:1", "isend #0 to rank 4 at a.py:1"),
    ],
)
def test_steps_in_words(op: str, number: int, peer: int | None, message: bool, at: str, text: str) -> None:
    step = {"op": op, "number": number, "peer": peer, "message": message, "at": at, "age_s": 0.0}
    assert describe(step) == text


def test_noting_a_call_costs_next_to_nothing() -> None:
    trail = make_recorder().trail("default", "default", (0,))
    array = np.ones(4, np.float32)

    def public() -> None:
        trail.begin("all_reduce", array)
        trail.end()

    def one_round() -> float:
        began = time.perf_counter()
        for _ in range(1000):
            public()
        return (time.perf_counter() - began) / 1000

    # 0.8 us where nothing else runs; the best of many rounds, so that a busy machine does not count.
    assert min(one_round() for _ in range(200)) < 4e-6


# ---------------------------------------------------------------------- when it is written down


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go, records among them unless the test names a folder for these."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("RANKWISE_TRACE_DIR", raising=False)
    return tmp_path


def fail(folder: str) -> None:
    if dist.get_rank() == 0:
        with pytest.raises(dist.DistTimeoutError):
            dist.all_reduce(np.ones(1), timeout=0.05)
        assert sorted(os.listdir(folder)) == ["rank0.json"]


def test_a_record_is_written_when_a_group_fails_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "made" / "for me"
    monkeypatch.setenv("RANKWISE_TRACE_DIR", str(folder))
    run_local(2, fail, str(folder))
    first, second = (json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2))
    assert sorted(os.listdir(folder)) == ["rank0.json", "rank1.json"]
    assert first["groups"]["default"]["failure"].startswith("DistTimeoutError")
    assert second["entries"] == []
    assert (first["rank"], second["rank"], second["world_size"]) == (0, 1, 2)
    stack = [frame["function"] for thread in first["threads"] for frame in thread["stack"]]
    assert "end" in stack  # LocalWorld.end, which has destroyed the groups


def test_stacks_are_taken_again_where_a_thread_was_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.14 writes no more of a stack than this, and of no other thread, where it comes upon one that ends."""
    whole, tries = faulthandler.dump_traceback, []

    def dump(file: IO[bytes], all_threads: bool) -> None:
        tries.append(all_threads)
        if len(tries) < 3:
            file.write(b"<freed thread state>\n")
        else:
            whole(file, all_threads=all_threads)

    monkeypatch.setattr("faulthandler.dump_traceback", dump)
    functions = [place.function for place in stacks()[threading.get_ident()]]
    assert "test_stacks_are_taken_again_where_a_thread_was_ending" in functions
    assert len(tries) == 3


def test_nothing_is_written_unless_asked_for(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKWISE_DEBUG", "off")
    run_local(2, late)
    assert list(temporary.iterdir()) == []


def test_with_debugging_on_a_failure_is_written_to_a_private_folder_which_the_log_names(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RANKWISE_DEBUG", "info")
    with caplog.at_level(logging.ERROR, "rankwise"):
        run_local(2, late)
    (path,) = temporary.glob("*/*/rank0.json")
    assert str(path) in caplog.text
    assert path.parents[1].stat().st_mode & 0o077 == 0


def test_a_folder_that_somebody_else_has_prepared_is_not_used(
    temporary: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (temporary / f"rankwise-trace-{os.getuid()}").symlink_to(temporary)
    with caplog.at_level(logging.WARNING, "rankwise"):
        assert dump.write(World(), "a test") is None
    assert "set RANKWISE_TRACE_DIR" in caplog.text
    assert len(list(temporary.iterdir())) == 1


def test_a_folder_that_cannot_be_written_to_is_no_error_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RANKWISE_TRACE_DIR", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING, "rankwise"):
        run_local(2, late)
    assert "cannot be written" in caplog.text


PROGRAM = Path(__file__).with_name("recorded_program.py")


class Program:
    """`recorded_program.py`, which repeats what it is told until its input ends."""

    def __init__(self, folder: Path, *arguments: str, **variables: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RANKWISE_")}
        path = str(Path(dist.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments],
            env={**environment, "PYTHONPATH": path, "TMPDIR": str(folder), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def read(self) -> str:
        return self.process.stdout.readline().strip()  # type: ignore[union-attr]

    def get(self, number: int) -> None:
        """Send it a signal once it is ready."""
        assert self.read() == "ready"
        self.process.send_signal(number)

    def goes_on(self) -> bool:
        """Tell whether it repeats what it is told; it has handled then what came before."""
        print("still here", file=self.process.stdin, flush=True)
        return self.read() == "still here"

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, out, err


Start = Callable[..., Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start programs, none of which outlives the test."""
    programs: list[Program] = []

    def one(*arguments: str, **variables: str) -> Program:
        programs.append(Program(tmp_path, *arguments, **variables))
        return programs[-1]

    yield one
    for program in programs:
        with program.process as process:
            process.kill()


def test_sigusr1_writes_a_record_and_the_program_goes_on(start: Start, tmp_path: Path) -> None:
    program = start("destroy", RANKWISE_TRACE_DIR=str(tmp_path / "out"))
    program.get(signal.SIGUSR1)
    assert program.goes_on()
    record = json.loads((tmp_path / "out/rank0.json").read_text())
    assert (record["reason"], record["entries"][0]["op"]) == ("SIGUSR1", "all_reduce")
    frames = [frame for thread in record["threads"] for frame in thread["stack"]]
    assert any(frame["file"].endswith(PROGRAM.name) for frame in frames)
    assert program.end() == (0, "True\n", "")
    assert json.loads((tmp_path / "out/rank0.json").read_text())["reason"] == "the groups were destroyed"


def test_sigusr1_without_a_folder_says_where_the_record_is(start: Start, tmp_path: Path) -> None:
    program = start()
    program.get(signal.SIGUSR1)
    assert program.goes_on()
    (path,) = tmp_path.glob("rankwise-trace-*/*/rank0.json")
    code, _, err = program.end()
    assert (code, err) == (0, f"rankwise: the operations of this rank are in {path}\n")


def test_a_program_keeps_its_own_handler(start: Start, tmp_path: Path) -> None:
    program = start("own")
    program.get(signal.SIGUSR1)
    assert program.read() == "mine"
    assert program.end()[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_does_not_write_its_parents_record(start: Start, tmp_path: Path) -> None:
    program = start("fork", "exit")
    assert program.read() == str(-signal.SIGUSR1)  # as if there were no handler
    assert program.end()[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_with_a_world_of_its_own_writes_its_own_record(start: Start, tmp_path: Path) -> None:
    program = start("fork", "again", RANKWISE_TRACE_DIR=str(tmp_path / "out"))
    assert [program.read(), program.read()] == ["0", "ready"]
    record = json.loads((tmp_path / "out/rank0.json").read_text())
    assert record["reason"] == "SIGUSR1"
    assert record["pid"] != program.process.pid
    assert program.end()[0] == 0


@pytest.mark.parametrize(("folder", "written"), [("out", True), ("", False)])
def test_a_rank_that_is_ended_by_sigterm_leaves_its_record(
    start: Start, tmp_path: Path, folder: str, written: bool
) -> None:
    variables = {"RANKWISE_TRACE_DIR": str(tmp_path / folder)} if folder else {}
    program = start(**variables)
    program.get(signal.SIGTERM)
    assert program.end()[0] == -signal.SIGTERM
    assert [path.name for path in tmp_path.rglob("*.json")] == (["rank0.json"] if written else [])
    assert not written or json.loads((tmp_path / "out/rank0.json").read_text())["reason"] == "SIGTERM"


def test_a_process_that_ends_leaves_its_record_and_no_secret_in_it(start: Start, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("5e" * 32)
    key.chmod(0o600)
    variables = {"RANKWISE_TRACE_DIR": str(tmp_path / "out"), "RANKWISE_SECRET_FILE": str(key), "MY_PASSWORD": "pssst"}
    assert start("exit", "hunter2", **variables).end()[0] == 0
    text = (tmp_path / "out/rank0.json").read_text()
    assert json.loads(text)["reason"] == "the process ended"
    assert not any(word in text for word in ("5e5e", "pssst", "hunter2", str(key)))


def test_what_others_push_out_while_it_is_read_is_read_whole() -> None:
    recorder = make_recorder(64)
    trail, array, spare = recorder.trail("other", "other", (0, 1)), np.ones(1), []

    def push_out(phase: str, about: object) -> None:
        for _ in range(70):
            trail.begin("barrier")

    thresholds = gc.get_threshold()
    for _ in range(20):
        for tag in range(64):  # which the entry alone keeps alive
            recorder.trail("gone", "gone", (0, 1)).begin_message("send", array, 1, tag)
        spare.append([(tag, tag) for tag in range(4000)])  # so that no tuple is at hand, and one must be made
        gc.callbacks.append(push_out)  # the collector may run wherever an object is made
        gc.set_threshold(1)
        try:
            entries, totals = recorder.entries(), trail.totals()
        finally:
            gc.set_threshold(*thresholds)
            gc.callbacks.remove(push_out)
        assert {(entry.trail.name, entry.op) for entry in entries} <= {("gone", "send"), ("other", "barrier")}
        assert set(totals) <= {"barrier"}
