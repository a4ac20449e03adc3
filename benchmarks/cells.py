"""Random calls of what a backend declares, compared with NumPy: python benchmarks/cells.py gloo --cells 2000 --seed 0

Each is an operation with a dtype and reduce op of the table, any count, root and group, blocking or not. Ranks draw the
same, so a failing one is replayed by its seed. Worlds have 2 to 4 ranks.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator

import rankwise as dist
from rankwise.backends.capability import OPS
from rankwise.backends.registry import registry
from rankwise.basics.arrays import DTYPES
from rankwise.basics.reduce_op import REDUCE_OPS
from rankwise_testing import RankPool
from rankwise_testing.suite.arrays import why_not
from rankwise_testing.suite.exercises import Case, perform, prepare
from rankwise_testing.suite.worlds import REDUCING

_AT_ONCE = 100


def declared(backend: str) -> list[tuple[str, str | None, str]]:
    """Return the cells of a backend's table on the CPU, of which arrays can be made here."""
    table, found = registry.get(backend).capabilities, []
    for op in OPS:
        cell = table.cell(op, "cpu")
        for reduce in REDUCE_OPS if op in REDUCING else (None,):
            takes = [d for d in DTYPES if cell.usable and cell.takes(d, reduce) and not why_not(d, "cpu")]
            found += [(op, reduce, dtype) for dtype in takes]
    return found


def drawn(backend: str, seed: int, count: int, size: int) -> Iterator[tuple[Case, bool, bool]]:
    """Yield calls, and for each whether it is asynchronous and whether a subgroup makes it."""
    dice, cells = random.Random(f"{backend} {seed} {size}"), declared(backend)
    for _ in range(count):
        op, reduce, dtype = dice.choice(cells)
        in_group = size > 2 and dice.random() < 0.3
        members = size - 1 if in_group else size
        length = dice.choice([0, 1, 2, 3, 17, 300, dice.randrange(5_000), dice.randrange(60_000)])
        case = Case(op, dtype, reduce, length, dice.randrange(members), dice.randrange(50))
        yield case, dice.random() < 0.4 and op not in ("send", "recv"), in_group


def perform_all(backend: str, seed: int, count: int) -> list[str]:
    """Make the calls on this rank, and return what was wrong."""
    dist.init_process_group(backend)
    size, wrong = dist.get_world_size(), []
    group = dist.new_group(list(range(size - 1, 0, -1)), sort_ranks=False) if size > 2 else None
    for number, (case, is_async, in_group) in enumerate(drawn(backend, seed, count, size)):
        if in_group and dist.get_rank() == 0:
            continue
        where = group if in_group else None
        try:
            if is_async:
                exercise = prepare(case, where)
                exercise.call(async_op=True).wait()
                exercise.check()
            else:
                perform(case, where)
        except AssertionError as error:
            wrong.append(f"seed {seed}, {size} ranks, call {number}: {case}: {error}")
    dist.destroy_process_group()
    return wrong


def main() -> int:
    """Make the calls in worlds of 2, 3 and 4 ranks, and return 1 if one was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend")
    parser.add_argument("--cells", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    has_runtime, done, wrong = registry.get(options.backend).runtime is not None, 0, []
    launch = registry.get(options.backend).launch if has_runtime else ()
    for size in (2, 3, 4):
        with RankPool(size, launch=launch) as pool:
            for seed in range(options.seed, options.seed + -(-options.cells // (3 * _AT_ONCE))):
                answers = pool.run(perform_all, options.backend, seed, _AT_ONCE, timeout=120)
                done += _AT_ONCE
                wrong += [text for texts in answers for text in texts]
    print("\n".join([f"{options.backend}: {done} random calls, {len(wrong)} wrong", *wrong[:20]]))
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
