"""A limit of the system that keeps a group from being made is named on all ranks, with the remedy."""

from __future__ import annotations

import errno
import threading

import pytest
from tests.ranks import pool_of

import rankwise as dist
from rankwise.basics.systems import cause
from rankwise_testing import RankPool

resource = pytest.importorskip("resource")


pool = pool_of(2)


def begin_with_small_files() -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        dist.init_process_group("gloo", timeout=30)
        dist.destroy_process_group()
    except dist.DistBackendError as error:
        return str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    return "made"


def test_a_limit_of_files_sizes_is_named_on_all_ranks(pool: RankPool) -> None:
    for said in pool.run(begin_with_small_files):
        assert said == "made" or ("1048576 bytes" in said and "ulimit -f" in said), said


def test_each_limit_is_named() -> None:
    assert "ulimit -u" in cause(RuntimeError("can't start new thread"))
    assert "ulimit -f" in cause(OSError(errno.EFBIG, "File too large"))
    assert "ulimit -n" in cause(OSError(errno.EMFILE, "Too many open files"))
    assert cause(RuntimeError("another")) == "another"


def begin_without(name: str) -> str:
    """Return what is said where threads of this name cannot be started."""
    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name.startswith(name):
            raise RuntimeError("can't start new thread")
        start(self)

    threading.Thread.start = refuse  # type: ignore[method-assign]
    try:
        dist.init_process_group("gloo", timeout=5)
        dist.destroy_process_group()
    except dist.DistError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
    return "made"


@pytest.mark.parametrize("name", ["rankwise meeting", "rankwise watch", "rankwise gloo idle", "rankwise gloo"])
def test_a_limit_of_threads_is_named_wherever_it_is_met(pool: RankPool, name: str) -> None:
    said = pool.run(begin_without, name)
    assert any("ulimit -u" in each for each in said), said
    assert "made" not in said, said  # one that comes late finds nobody


def test_a_server_whose_thread_cannot_be_started_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(dist.DistError, match=r"ulimit -u"):
            dist.TCPStore("127.0.0.1", is_master=True)
    with dist.TCPStore("127.0.0.1", is_master=True, timeout=20) as store:
        store.set("key", "value")
