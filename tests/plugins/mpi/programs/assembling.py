"""A member that withdraws from the making of a group unheard does not end the making of a later one of that name."""

from mpi4py import MPI

from rankwise.backends import Deadline
from rankwise.errors import DistTimeoutError
from rankwise_mpi.process.assembly import Assembly

kept = []
comm = MPI.COMM_WORLD.Dup()
assembly = Assembly(comm, lambda *what: kept.append(what))

# The first rank never comes to this one.
if comm.rank == 1:
    try:
        with assembly.of("group-1", "first life", (0, 1), Deadline(0.05), lambda: None):
            raise AssertionError("nobody else has come")
    except DistTimeoutError:
        pass
comm.Barrier()


def call_the_other():
    """Have the other rank come only now that this one has taken in what it said before."""
    if not kept:
        kept.append(comm.isend("come", 1, 5))


if comm.rank == 1:
    assert comm.recv(source=0, tag=5) == "come"
with assembly.of("group-1", "second life", (0, 1), Deadline(20), call_the_other):
    pass

# One that was answered before it withdrew has heard that, and the leader has forgotten it.
assembly._note(("group-2", 1), 7, 3, "why")
assert ("group-2", 1) not in assembly._come
print("fine", flush=True)
