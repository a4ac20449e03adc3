"""The most frequent words of texts that are divided among the ranks."""

from collections import Counter

from mpi4py import MPI

TEXTS = ["the ring and the grid", "a grid of ranks", "ranks send what the ring needs", "the end"] * 25

comm = MPI.COMM_WORLD
each, more = divmod(len(TEXTS), comm.size)
begin = comm.rank * each + min(comm.rank, more)
texts = TEXTS[begin : begin + each + (comm.rank < more)]
counts = comm.allreduce(Counter(word for text in texts for word in text.split()))
assert counts == Counter(" ".join(TEXTS).split())
if comm.rank == 0:
    print("right:", sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:3])
