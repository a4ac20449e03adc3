"""A limit of the system that keeps a group from being made is named on all ranks, with the remedy."""

from __future__ import annotations

import errno

import pytest

import rankwise as dist
from rankwise.basics.system_errors import cause
from rankwise_testing import run_ranks

resource = pytest.importorskip("resource")


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


def test_a_limit_of_files_sizes_is_named_on_all_ranks() -> None:
    for said in run_ranks(begin_with_small_files, 2):
        assert said == "made" or ("1048576 bytes" in said and "ulimit -f" in said), said


def test_each_limit_is_named() -> None:
    assert "ulimit -u" in cause(RuntimeError("can't start new thread"))
    assert "ulimit -f" in cause(OSError(errno.EFBIG, "File too large"))
    assert "ulimit -n" in cause(OSError(errno.EMFILE, "Too many open files"))
    assert cause(RuntimeError("another")) == "another"
