"""`FileStore` beyond what all stores do: several processes, files left over, and what a crash leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.by_reference import command
from tests.processes import forked, held

from rankwise.errors import DistStoreError, DistTimeoutError
from rankwise_stores import FileStore

PATIENCE_S = 20.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


Work = Callable[[FileStore], object]


def use(path: Path, name: str) -> None:
    """Use a store, say so, and wait to be told to end."""
    with FileStore(path) as store:
        globals()[name](store)
        print("done", flush=True)
        sys.stdin.read()


@contextmanager
def user(path: Path, work: Work) -> Iterator[subprocess.Popen[str]]:
    """Use a store in another process: the work is done, then a line is printed, then it waits to be told to end."""
    words = command(use, path, work.__name__)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            end(process)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(PATIENCE_S)


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n"


def count_and_meet(store: FileStore) -> None:
    for _ in range(200):
        store.add("n", 1)
    store.get("go")
    store.append("log", "x")
    store.barrier("b", 4)


def test_processes_share_a_store_by_naming_the_same_file(path: Path) -> None:
    with FileStore(path, timeout=PATIENCE_S) as store, ExitStack() as stack:
        others = [stack.enter_context(user(path, count_and_meet)) for _ in range(3)]
        store.set("go", "")
        store.barrier("b", 4)
        for process in others:
            ready(process)
        assert store.get("n") == b"600"
        assert store.get("log") == b"xxx"


def test_the_last_to_close_removes_the_file_which_may_be_made_beforehand(path: Path) -> None:
    path.touch(0o600)
    first, second = FileStore(path), FileStore(path)
    first.close()
    assert path.exists()
    second.set("key", "v")
    second.close()
    assert not path.exists()


def write(store: FileStore) -> None:
    store.set("key", "v")


def test_a_file_that_is_left_from_an_earlier_run_is_not_joined(path: Path) -> None:
    with user(path, write) as process:
        ready(process)
        end(process)
    assert path.stat().st_size > 0
    with FileStore(path) as store:
        assert store.num_keys() == 0
        store.set("key", "new")
        with FileStore(path) as other:
            assert other.get("key") == b"new"
    assert not path.exists()


def test_a_file_that_one_of_its_users_still_has_is_joined(path: Path) -> None:
    with FileStore(path) as store:
        with user(path, write) as process:
            ready(process)
            end(process)
        with FileStore(path) as late:
            assert late.get("key") == b"v"
        assert store.get("key") == b"v"


@pytest.mark.parametrize("content", [b"my thesis", b"x" * 10_000, b"rankwise store 3" + bytes(24)])
def test_a_file_of_another_kind_is_refused_and_kept(path: Path, content: bytes) -> None:
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(DistStoreError, match=r"not the file of a store"):
        FileStore(path)
    assert path.read_bytes() == content


def test_paths_that_cannot_be_used_are_an_error_that_names_them(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "such" / "directory", tmp_path, Path("/dev/null")):
        with pytest.raises(DistStoreError, match=str(path)):
            FileStore(path)


def test_a_record_that_was_cut_short_by_a_crash_is_not_read(path: Path) -> None:
    with FileStore(path) as store:
        store.set("key", "v")
        # A writer that dies before the header says so leaves bytes behind the end that nobody has to care about.
        with path.open("ab") as file:
            file.write(b"\x05\x00\x00\x00\x99\x00\x00\x00half a rec")
        with FileStore(path) as other:
            assert other.list_keys() == ["key"]
            other.set("other", "w")
        assert store.multi_get(["key", "other"]) == [b"v", b"w"]


def write_on(store: FileStore) -> None:
    print("done", flush=True)
    while True:
        store.add("n", 1)
        store.append("text", "x" * 1000)


def test_a_writer_killed_at_any_moment_leaves_a_store_that_works(path: Path) -> None:
    with FileStore(path, timeout=PATIENCE_S) as store:
        for _ in range(4):
            with user(path, write_on) as process:
                ready(process)
                threading.Timer(0.02, process.kill).start()
                process.wait(PATIENCE_S)
            count = int(store.get("n", timeout=0)) if store.check(["n"]) else 0
            assert count - len(store.get("text", timeout=0) if store.check(["text"]) else b"") // 1000 in (0, 1)
            store.set("n", "0")
            store.delete_key("text")


@pytest.mark.parametrize("garbage", [b"", b"short", b"x" * 200])
def test_a_file_that_somebody_else_has_overwritten_is_an_error(path: Path, garbage: bytes) -> None:
    with FileStore(path) as store:
        store.set("key", "v")
        path.write_bytes(garbage)
        with pytest.raises(DistStoreError, match=r"somebody else has written|cut short"):
            store.get("key")


def test_a_file_that_somebody_has_removed_is_an_error_rather_than_a_wait(path: Path) -> None:
    with FileStore(path) as store:
        path.unlink()
        with pytest.raises(DistStoreError, match="has been removed or replaced"):
            store.get("key")


def test_the_file_does_not_grow_without_end(path: Path) -> None:
    with FileStore(path) as store, FileStore(path) as other:
        store.set("kept", "from the beginning")
        for number in range(300):
            store.set("large", bytes([number % 256]) * 10_000)
            if number % 50 == 0:
                assert other.get("large") == bytes([number % 256]) * 10_000
        assert path.stat().st_size < 1 << 20
        assert other.get("large") == bytes([299 % 256]) * 10_000
        assert other.get("kept") == b"from the beginning"
        with FileStore(path) as late:
            assert late.list_keys() == ["kept", "large"]


def test_more_users_than_the_world_has_are_refused(path: Path) -> None:
    with FileStore(path, 2) as first, FileStore(path, 2) as second:
        with pytest.raises(DistStoreError, match=r"2 processes use .* already"):
            FileStore(path, 2)
        with first.clone() as twin:  # is no rank
            twin.set("key", "v")
        second.close()
        with FileStore(path, 2) as third:
            assert third.get("key") == b"v"


def keep_the_lock(store: FileStore) -> None:
    store._file._journal.lock(1)


def test_a_lock_that_is_kept_ends_in_a_time_out(path: Path) -> None:
    with FileStore(path) as store, user(path, keep_the_lock) as process:
        ready(process)
        process.send_signal(signal.SIGSTOP)
        store.set_timeout(0.05)
        for call in (lambda: store.set("key", "v"), lambda: FileStore(path, timeout=0.05)):
            with pytest.raises(DistTimeoutError, match=r"has kept the lock of .*store"):
                call()
        end(process)
        store.set("key", "v")


def test_a_forked_child_becomes_a_user_of_its_own(path: Path) -> None:
    with FileStore(path, timeout=PATIENCE_S) as store:
        store.set("from parent", "v")

        def count() -> None:
            assert store.get("from parent") == b"v"
            for _ in range(100):
                store.add("n", 1)

        def count_and_close() -> None:
            count()
            store.close()

        with forked(count_and_close):
            count()
        assert store.get("n") == b"200"
        assert path.exists()
    assert not path.exists()


def test_a_full_disk_is_an_error_and_the_change_is_undone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FileStore(path) as store:
        store.set("key", "v")

        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            with pytest.raises(DistStoreError, match="No space left on device"):
                store.set("key", "w")
        assert store.get("key") == b"v"


def test_stores_leave_no_descriptor_behind(path: Path) -> None:
    before, _ = held()
    for _ in range(50):
        with FileStore(path) as store, store.clone() as twin:
            twin.set("key", "v")
    path.touch(0o600)
    path.write_bytes(b"no store")
    for _ in range(5):
        with pytest.raises(DistStoreError):
            FileStore(path)
    path.unlink()
    forgotten = FileStore(path)
    del forgotten
    assert held()[0] == before
    assert not path.exists()
