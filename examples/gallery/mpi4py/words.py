"""The most frequent words of texts that are divided among the ranks."""

from collections import Counter

from mpi4py import MPI

comm = MPI.COMM_WORLD

TEXTS = ["the ring and the grid", "a grid of ranks", "ranks send what the ring needs", "the end"] * 25


def counted(texts):
    """Return how often each word is in all texts, of which each rank takes its share."""
    each, more = divmod(len(texts), comm.size)
    begin = comm.rank * each + min(comm.rank, more)
    mine = texts[begin : begin + each + (comm.rank < more)]
    return comm.allreduce(Counter(word for text in mine for word in text.split()))


if __name__ == "__main__":
    counts = counted(TEXTS)
    assert counts == Counter(" ".join(TEXTS).split())
    if comm.rank == 0:
        print("right:", sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:3])
