"""Tasks of very different lengths for whichever rank is free."""

from mpi4py import MPI

comm = MPI.COMM_WORLD


def steps(number):
    """Return how many steps a number takes to 1, by halves and by three times and one."""
    count = 0
    while number != 1:
        number, count = number // 2 if number % 2 == 0 else 3 * number + 1, count + 1
    return count


def longest(numbers):
    """Return how many steps the longest of all takes, to rank 0."""
    most, tasks, status = 0, iter(numbers), MPI.Status()
    if comm.rank == 0:
        for worker in range(1, comm.size):
            comm.send(next(tasks), worker)
        for _ in numbers:
            most = max(most, comm.recv(status=status))
            comm.send(next(tasks, None), status.source)
    else:
        while (task := comm.recv(source=0)) is not None:
            comm.send(steps(task), 0)
    return most


if __name__ == "__main__":
    most = longest(range(1, 1000))
    if comm.rank == 0:
        assert most == max(map(steps, range(1, 1000)))
        print("right: the longest takes", most, "steps")
