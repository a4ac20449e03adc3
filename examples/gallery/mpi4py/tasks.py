"""Tasks of very different lengths for whichever rank is free."""

from mpi4py import MPI


def steps(number):
    """Return how many steps a number takes to 1, by halves and by three times and one."""
    count = 0
    while number != 1:
        number, count = number // 2 if number % 2 == 0 else 3 * number + 1, count + 1
    return count


comm = MPI.COMM_WORLD
if comm.rank == 0:
    tasks, status, longest = iter(range(1, 1000)), MPI.Status(), 0
    for worker in range(1, comm.size):
        comm.send(next(tasks), worker)
    for _ in range(1, 1000):
        longest = max(longest, comm.recv(status=status))
        comm.send(next(tasks, None), status.Get_source())
    assert longest == max(map(steps, range(1, 1000)))
    print("right: the longest takes", longest, "steps")
else:
    while (task := comm.recv(source=0)) is not None:
        comm.send(steps(task), 0)
