"""Random programs over all layouts: `random_programs.py [--seed N] [--count N]`; exits with 1 where a result is wrong.

A program is a few random calls in a group, and in some of its ranks, by ranks of which all, none or some have the
compiled parts, on hosts that are pretended, with frames that are guarded in one of the ways. Its seed says all of it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import rankwise as dist
from rankwise_testing import RankPool

HERE = Path(__file__).parent
sys.path[:0] = [] if str(HERE) in sys.path else [str(HERE)]
import random_calls  # noqa: E402

MOST_RANKS, PATIENCE_S = 6, 60.0
#: On which host each rank is.
LAYOUTS = (
    *((0,) * size for size in (2, 3, 4, 6)),
    *((0, 1), (0, 0, 1), (0, 1, 1), (0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 0), (0, 0, 0, 1), (0, 0, 0, 1, 1, 1)),
    *((0, 1, 2), (0, 0, 1, 2), (0, 1, 2, 2, 1), (0, 0, 1, 1, 2, 2), (0, 0, 0, 1, 1, 2)),
    *((0, 1, 2, 3), (0, 0, 1, 2, 3), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5)),
)
#: Which ranks have the compiled parts.
NATIVE = {"on": "111111", "off": "000000", "mixed": "100110"}
INTEGRITY = ("header", "full", "encrypted")
TRANSPORTS = ("auto", "auto", "auto", "tcp")
#: From how many bytes on long calls are left to Python.
MOST_NBYTES = (64 << 20, 64 << 20, 300_000, 1)
#: Starts the ranks, each with the compiled parts or without.
LAUNCH = """
for rank in 0 1 2 3 4 5; do
    native=$(printf %s "$NATIVE_RANKS" | cut -c $((rank + 1)))
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=6 LOCAL_WORLD_SIZE=6 RANKWISE_NATIVE=$native "$@" &
done
wait
"""


class Program(NamedTuple):
    """What all ranks know of a program."""

    seed: int
    native: str
    integrity: str
    transport: str
    hosts: tuple[int, ...]
    members: tuple[int, ...]
    most_nbytes: int
    calls: int

    def __str__(self) -> str:
        settings = f"native {self.native}, integrity {self.integrity}, transport {self.transport}"
        return f"program {self.seed}: {settings}, hosts {self.hosts}, subgroup {self.members}, {self.most_nbytes} B"


def drawn(seed: int, calls: int = 10) -> Program:
    """Return the program of a seed."""
    random = np.random.default_rng([seed, 1])

    def one_of(things: Any) -> Any:
        return things[int(random.integers(len(things)))]

    hosts = one_of(LAYOUTS)
    members = random.permutation(len(hosts))[: int(random.integers(1, len(hosts) + 1))]
    integrity = INTEGRITY[seed // len(NATIVE) % len(INTEGRITY)]
    native = list(NATIVE)[seed % len(NATIVE)]
    ranks = tuple(sorted(int(rank) for rank in members))
    return Program(seed, native, integrity, one_of(TRANSPORTS), hosts, ranks, one_of(MOST_NBYTES), calls)


class Pools:
    """Ranks that run programs, for each way of having the compiled parts."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._pools: dict[str, RankPool] = {}

    def __enter__(self) -> Pools:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self, program: Program) -> list[str]:
        """Run a program, and return the calls that brought a wrong result on some rank, or what went wrong else."""
        if program.native not in self._pools:
            env = {"NATIVE_RANKS": NATIVE[program.native]}
            pool = RankPool(MOST_RANKS, launch=("sh", "-c", LAUNCH, "sh"), env=env)
            self._pools[program.native] = self._stack.enter_context(pool)
        try:
            found = self._pools[program.native].run(carry_out, program, size=len(program.hosts), timeout=PATIENCE_S)
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]
        return [f"rank {rank}: {wrong}" for rank, calls in enumerate(found) for wrong in calls]


@contextmanager
def _settings(program: Program) -> Iterator[None]:
    """Be on a pretended host, with the settings of a program."""
    host = f"host-{program.hosts[int(os.environ['RANK'])]}"
    os.environ["WORLD_SIZE"] = str(len(program.hosts))
    os.environ["RANKWISE_GLOO_INTEGRITY"], os.environ["RANKWISE_GLOO_TRANSPORT"] = program.integrity, program.transport
    changed: list[tuple[dict[str, Any], str, Any]] = [
        (vars(import_module("rankwise_gloo_tcp.setup.cards")), "machine", lambda: (host, host)),
    ]
    if import_module("rankwise.basics.native").module() is not None:
        compiled_means = vars(import_module("rankwise_gloo_tcp.collectives.compiled_means"))
        changed.append((compiled_means, "_MOST_NBYTES", program.most_nbytes))
    before = [names[name] for names, name, _ in changed]
    for names, name, value in changed:
        names[name] = value
    try:
        yield
    finally:
        for (names, name, _), value in zip(changed, before, strict=True):
            names[name] = value


def carry_out(program: Program) -> list[str]:
    """Be a rank of a program; return the calls that brought a wrong result."""
    with _settings(program):
        dist.init_process_group("gloo", timeout=PATIENCE_S / 2)
        rank, size = dist.get_rank(), dist.get_world_size()
        group: Any = dist.new_group(program.members)
        wrong = random_calls.wrong_calls(random_calls.Draw([program.seed, 2], rank, size), program.calls)
        if rank in program.members:
            place, count = program.members.index(rank), len(program.members)
            draw = random_calls.Draw([program.seed, 3], place, count, program.members)
            wrong += random_calls.wrong_calls(draw, program.calls // 2, group)
        wrong += random_calls.wrong_calls(random_calls.Draw([program.seed, 4], rank, size), 1)
        dist.destroy_process_group()
    return wrong


def main() -> int:
    """Run programs, and tell of those that are wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="that of the first program (1)")
    parser.add_argument("--count", type=int, default=1000, help="how many programs (1000)")
    parser.add_argument("--calls", type=int, default=10, help="how many calls each makes in the whole group (10)")
    given, wrong = parser.parse_args(), 0
    with Pools() as pools:
        for seed in range(given.seed, given.seed + given.count):
            program = drawn(seed, given.calls)
            found = pools.run(program)
            wrong += bool(found)
            if found:
                print(program, *found, sep="\n    ", flush=True)
            if seed % 100 == 0:
                print(f"{seed - given.seed + 1} programs, {wrong} wrong", flush=True)
    print(f"{given.count} programs from seed {given.seed} on: {wrong} wrong")
    return bool(wrong)


if __name__ == "__main__":
    # The ranks find what they are to do by the module's name.
    from random_programs import main as run

    sys.exit(run())
