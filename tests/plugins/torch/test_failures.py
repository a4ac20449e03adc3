"""What goes wrong is told in torch's kinds of errors and in rankwise's words."""

import copy
import pickle

import failure_programs as programs
import pytest
import torch.distributed as dist
from ranks import run

import rankwise
from rankwise_torch.errors import of_both


@pytest.mark.parametrize("program", ["mismatch", "late", "late_to_a_work", "late_in_barrier"])
def test_failures(program):
    """Of calls."""
    run(getattr(programs, program))


def test_a_checkpoint_names_the_rank_that_failed(tmp_path):
    """With its error, on all ranks."""
    run(programs.a_checkpoint_tells_of_it, folder=str(tmp_path))


def test_works_and_futures_fail():
    """At the death of another rank."""
    run(programs.errors_of_works, killed=(1,))


@pytest.mark.parametrize("size", [2, 3])
def test_a_death_in_backward_is_named_within_a_second(size):
    """By all survivors."""
    took = run(programs.killed_in_backward, size, killed=(size - 1,))
    assert all(seconds < 1 for seconds in took[:-1])


@pytest.mark.parametrize(
    ("error", "theirs"),
    [
        (rankwise.PeerDiedError(3, "here", "killed by SIGKILL"), dist.DistBackendError),
        (rankwise.CollectiveMismatchError("differs", (1,)), dist.DistBackendError),
        (rankwise.DistTimeoutError("not done"), dist.DistBackendError),
        (rankwise.DistNetworkError("broken"), dist.DistNetworkError),
        (rankwise.DistStoreError("lost"), dist.DistStoreError),
        (rankwise.RendezvousError("two of them"), dist.DistError),
        (rankwise.UnsupportedOperationError("no sum"), dist.DistBackendError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.__name__,
)
def test_errors_are_of_both_kinds(error, theirs):
    """With the same words and attributes, also once they were carried to another process."""
    error.__notes__ = ["a note"]
    carriers = [copy.copy, copy.deepcopy]
    carriers += [lambda value, n=n: pickle.loads(pickle.dumps(value, n)) for n in range(pickle.HIGHEST_PROTOCOL + 1)]
    for carried in (lambda value: value, *carriers):
        both = carried(of_both(error))
        assert isinstance(both, theirs)
        assert isinstance(both, type(error))
        assert str(both) == str(error)
        assert vars(both) == vars(error)
        assert of_both(both) is both
    other = ValueError("not ours")
    assert of_both(other) is other
