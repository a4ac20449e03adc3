"""Let heat spread over a plate that is cut into blocks: each rank swaps the edges of its block with its neighbours.

    rankwise run -n 4 halo.py
    mpiexec -n 4 python halo.py mpi

A block has a frame of one cell, the halo, for the neighbours' cells. Before each step the four edges travel in one
batch; where there is no neighbour the halo keeps the temperature of the rim.
"""

from __future__ import annotations

import sys

import numpy as np

import rankwise as dist

HEIGHT, WIDTH, MOST_STEPS, LOOK_EVERY, ENOUGH = 40, 61, 4000, 50, 0.005
#: For each side: where the neighbour is, which cells it needs, and where those that it sends belong.
SIDES = {
    "north": ((-1, 0), np.s_[1, 1:-1], np.s_[0, 1:-1]),
    "south": ((1, 0), np.s_[-2, 1:-1], np.s_[-1, 1:-1]),
    "west": ((0, -1), np.s_[1:-1, 1], np.s_[1:-1, 0]),
    "east": ((0, 1), np.s_[1:-1, -2], np.s_[1:-1, -1]),
}


def process_grid(size: int) -> tuple[int, int]:
    """Return as square a grid of ranks as there is."""
    rows = next(r for r in range(int(size**0.5), 0, -1) if size % r == 0)
    return rows, size // rows


def cut(cells: int, parts: int, part: int) -> slice:
    """Return which cells a part has; the parts differ by one cell at most."""
    return slice(cells * part // parts, cells * (part + 1) // parts)


def plate() -> np.ndarray:
    """Return the plate with its rim: hot in the north, cold elsewhere."""
    whole = np.zeros((HEIGHT + 2, WIDTH + 2))
    whole[0] = 100.0
    return whole


def spread(cells: np.ndarray) -> float:
    """Give each cell the mean of its neighbours; return the largest change."""
    new = (cells[:-2, 1:-1] + cells[2:, 1:-1] + cells[1:-1, :-2] + cells[1:-1, 2:]) / 4
    change = float(np.abs(new - cells[1:-1, 1:-1]).max())
    cells[1:-1, 1:-1] = new
    return change


class Block:
    """One rank's part of the plate."""

    def __init__(self, rank: int, size: int) -> None:
        self.rows, self.columns = process_grid(size)
        self.row, self.column = divmod(rank, self.columns)
        self.place = cut(HEIGHT, self.rows, self.row), cut(WIDTH, self.columns, self.column)
        south, east = (slice(part.start, part.stop + 2) for part in self.place)
        self.cells = plate()[south, east].copy()
        self.neighbours = {name: peer for name in SIDES if (peer := self.neighbour(name)) is not None}

    def neighbour(self, side: str) -> int | None:
        """Return the rank on a side, if there is one."""
        (down, right), _, _ = SIDES[side]
        row, column = self.row + down, self.column + right
        inside = 0 <= row < self.rows and 0 <= column < self.columns
        return row * self.columns + column if inside else None

    def swap(self) -> None:
        """Swap edges with all neighbours at once."""
        edges, messages = {}, []
        for side, peer in self.neighbours.items():
            _, edge, _ = SIDES[side]
            # An edge is not always contiguous in memory, so it travels in an array of its own.
            mine = np.ascontiguousarray(self.cells[edge])
            edges[side] = np.empty_like(mine)
            messages += [dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, edges[side], peer)]
        if messages:
            for work in dist.batch_isend_irecv(messages):
                work.wait()
        for side, halo in edges.items():
            self.cells[SIDES[side][2]] = halo


def main() -> None:
    """Step until nothing changes much, put the blocks together, and compare them with a plate in one piece."""
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    block = Block(rank, size)
    for step in range(1, MOST_STEPS + 1):
        block.swap()
        change = np.array([spread(block.cells)])
        if step % LOOK_EVERY == 0:
            dist.all_reduce(change, dist.ReduceOp.MAX)
            if change[0] < ENOUGH:
                break

    mine = np.ascontiguousarray(block.cells[1:-1, 1:-1])
    places = [Block(r, size).place for r in range(size)]
    parts = [np.empty((rows.stop - rows.start, columns.stop - columns.start)) for rows, columns in places]
    dist.gather(mine, parts if rank == 0 else None, dst=0)
    if rank == 0:
        together, whole = np.empty((HEIGHT, WIDTH)), plate()
        for place, part in zip(places, parts, strict=True):
            together[place] = part
        for _ in range(step):
            spread(whole)
        if not np.array_equal(together, whole[1:-1, 1:-1]):
            raise SystemExit("the blocks are not the plate")
        print(f"{block.rows} x {block.columns} blocks, {step} steps, {together.mean():.2f} degrees on average")
        print("right: the blocks are the plate in one piece, bit for bit")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
