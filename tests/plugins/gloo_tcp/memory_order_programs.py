"""What ranks do whose arrays lie in other memory orders than C's."""

from __future__ import annotations

from typing import Any

import far_away
import numpy as np

import rankwise as dist
from rankwise.backends import Reordered

SHAPE = (96, 5, 240)
#: The axes as they lie, from the slowest to the fastest.
ORDERS = {"C": (0, 1, 2), "F": (2, 1, 0), "L": (0, 2, 1)}


class Copies:
    """Counts which arrays are copied into C order."""

    def __init__(self) -> None:
        self.count, self._plain = 0, Reordered.in_order

    def __enter__(self) -> Copies:
        def counted(reordered: Reordered) -> Any:
            self.count += 1
            return self._plain(reordered)

        Reordered.in_order = counted  # type: ignore[method-assign]
        return self

    def __exit__(self, *stop: object) -> None:
        Reordered.in_order = self._plain  # type: ignore[method-assign]


def content(rank: int, dtype: str) -> Any:
    return ((np.arange(np.prod(SHAPE)) + rank) % 5 + rank).astype(dtype).reshape(SHAPE)


def lying(order: str, values: Any) -> Any:
    """Return an array of a memory order."""
    axes = ORDERS[order]
    array = np.empty([SHAPE[axis] for axis in axes], values.dtype).transpose(np.argsort(axes))
    array[...] = values
    return array


def copied(orders: str, dtype: str = "float32", terms: dict[str, Any] | None = None) -> list[int]:
    """Make each call three times, on arrays that lie so; return how many copies each kind of call has made."""
    far_away.pretend()
    dist.init_process_group("gloo", timeout=60)
    rank, size = dist.get_rank(), dist.get_world_size()
    contents = [content(each, dtype) for each in range(size)]
    total = np.sum(contents, axis=0).astype(dtype)
    wanted = {"all_reduce": total, "broadcast": contents[1], "reduce": total if rank == 1 else contents[rank]}
    found = []
    for name, want in wanted.items():
        with Copies() as copies:
            for _ in range(3):
                array = lying(orders[rank], contents[rank])
                args = () if name == "all_reduce" else (1,)
                work = getattr(dist, name)(array, *args, **(terms or {}))
                if work is not None:
                    work.wait()
                assert np.array_equal(array, want), (rank, name)
        found.append(copies.count)
    dist.destroy_process_group()
    return found


def in_the_order_of_issue(orders: str) -> int:
    """Issue many calls of which some are made again, while others are behind them; return how many there were."""
    far_away.pretend()
    dist.init_process_group("gloo", timeout=60)
    rank, size = dist.get_rank(), dist.get_world_size()
    works = []
    for step in range(8):
        mine = [content(rank + step, "int32")[: 60 + step] for _ in range(2)]
        arrays = [mine[0] if orders[rank] == "C" else np.asfortranarray(mine[0]), mine[1]]
        if orders[rank] != "C":
            assert not arrays[0].flags.c_contiguous
        works += [(dist.all_reduce(array, async_op=True), array, step) for array in arrays]
    dist.all_reduce(last := lying(orders[rank], content(rank, "int32")))
    assert np.array_equal(last, sum(content(each, "int32") for each in range(size)))
    for work, array, step in works:
        assert work is not None
        work.wait()
        want = sum(content(each + step, "int32")[: 60 + step] for each in range(size))
        assert np.array_equal(array, want), (rank, step)
    dist.destroy_process_group()
    return len(works)
