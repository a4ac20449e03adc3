"""The command: which programs are run, what is printed, and the exit code."""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from itertools import count

from rankwise.errors import DistTimeoutError
from rankwise_testing import RankFailedError
from rankwise_testing.suite.place import register_from
from soak.minimise import minimised
from soak.pauses import VARIABLE
from soak.pool import TRANSPORTS, Pool, Threads, make_pool
from soak.program import Program, generate

#: How many programs a transport runs before it is another one's turn.
_TURN = 20
#: Every so many programs one ends with the death of a rank, where that is possible.
_DEATHS = 50
_TELL_S = 30.0
#: How often a shorter program is run before it is said to go well.
_TRIES = 3
#: How often the line that replays a failure runs it: what depends on who is first seldom fails the first time.
_REPLAYS = 50
#: Of how many ranks that failed it is told where.
_PLACES = 3


def main() -> int:
    """Run the soak, and return 0 if every program went well."""
    given = _arguments().parse_args()
    os.environ[VARIABLE] = str(given.pauses)
    register_from(given.plugin_module)
    soak = _Soak(given)
    try:
        return soak.run()
    finally:
        soak.close()


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="soak", description="Random programs against a model in NumPy.")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--count", type=int, help="stop after so many programs")
    parser.add_argument("--seed", type=int, help="run the program of this seed alone, or begin with it")
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--plugin-module", help="a module whose backend is registered first")
    parser.add_argument("--transport", default="", help=f"of {', '.join(TRANSPORTS)}; several by commas (gloo: all)")
    parser.add_argument("--ranks", default="1-9", help="how many ranks: 5, or 2-9")
    parser.add_argument("--timeout", type=float, default=10.0, help="the time-out of the groups, in seconds")
    parser.add_argument("--keep", default="", help="run only these steps of the seed's program: 3,7")
    parser.add_argument("--times", type=int, default=1, help="run each program so often, as long as it goes well")
    parser.add_argument("--pauses", type=float, default=0.0, metavar="P", help="stop at any call so likely: 0.001")
    parser.add_argument("--deaths", action="store_true", help="let ranks die at the end of some programs")
    parser.add_argument("--failures", type=int, default=1, help="stop after so many programs that failed")
    parser.add_argument("--minimise", type=float, default=90.0, metavar="S", help="how long to shorten a failure")
    return parser


class _Soak:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        least, _, most = given.ranks.partition("-")
        self.least, self.most = int(least), int(most or least)
        chosen = [name for name in given.transport.split(",") if name]
        self.transports = chosen or (["tcp", "shm", "auto", "hosts"] if given.backend == "gloo" else ["default"])
        self.pools: dict[str, Pool | Threads] = {}
        self.done = self.failed = 0
        self.told = 0.0

    def run(self) -> int:
        given, began = self.given, time.monotonic()
        alone = given.seed is not None and given.count is None and given.seconds is None
        for number in count():
            transport = self.transports[number // _TURN % len(self.transports)]
            if alone:
                if number == len(self.transports):
                    break
                transport = self.transports[number]
            if given.count is not None and number >= given.count:
                break
            if given.seconds is not None and time.monotonic() - began > given.seconds:
                break
            seed = (given.seed or 0) + (0 if alone else number)
            self._tell(time.monotonic() - began)
            if not self._one(seed, transport) and self.failed >= given.failures:
                break
        took = time.monotonic() - began
        print(f"{self.done} programs in {took:.0f} s, {self.failed} of them failed", flush=True)
        return 1 if self.failed else 0

    def _tell(self, seconds: float) -> None:
        """Show now and then, to who looks on, how far it is."""
        if seconds - self.told > _TELL_S:
            self.told = seconds
            print(f"{self.done} programs in {seconds:.0f} s, {self.failed} of them failed", file=sys.stderr, flush=True)

    def close(self) -> None:
        for pool in self.pools.values():
            pool.close()

    def program(self, seed: int) -> Program:
        deaths = self.given.deaths and seed % _DEATHS == _DEATHS - 1
        program = generate(seed, self.most, self.least, deaths)
        keep = self.given.keep
        return program.only([int(place) for place in keep.split(",")]) if keep else program

    def _one(self, seed: int, transport: str) -> bool:
        program = self.program(seed)
        problem = self._in_several_runs(program, transport, self.given.times)
        self.done += 1
        if not problem:
            return True
        self.failed += 1
        shape = f"{program.size} ranks, {len(program.steps)} steps"
        print(f"\nseed {seed} over {transport}, {shape}: {problem}", flush=True)
        fails = partial(self._in_several_runs, transport=transport, times=_TRIES)
        shorter = minimised(program, fails, self.given.minimise)
        if len(shorter.steps) < len(program.steps):
            print(f"with {len(shorter.steps)} steps: {fails(shorter) or 'not every time'}")
        for step in shorter.steps:
            print(f"    {step.at}: {step.kind} of ranks {program.groups[step.group]} {step.what!s:.600}")
        keep = ",".join(str(step.at) for step in shorter.steps)
        where = f"--backend {self.given.backend} --transport {transport} --ranks {self.given.ranks}"
        pauses = f" --pauses {self.given.pauses:g}" if self.given.pauses else ""
        which = f"--seed {seed}{' --deaths' * self.given.deaths} --keep {keep} --times {_REPLAYS}"
        print(f"replay: python benchmarks/soak {where}{pauses} {which}", flush=True)
        return False

    def _in_several_runs(self, program: Program, transport: str, times: int) -> str:
        """Return what went wrong in the first of several runs that fails: much depends on who is first."""
        return next(filter(None, (self._problem(program, transport) for _ in range(times))), "")

    def _problem(self, program: Program, transport: str) -> str:
        """Run a program, and return what went wrong."""
        if transport not in self.pools:
            self.pools[transport] = make_pool(self.given.backend, transport, self.most)
        timeout_s = self.given.timeout
        try:
            self.pools[transport].run(program, timeout_s, 3 * timeout_s)
        except DistTimeoutError as error:
            return f"it stands still: {error!s:.6000}"
        except RankFailedError as error:
            places = [f"on rank {rank}: {each.__cause__!s:.3000}" for rank, each in error.errors.items()]
            return "\n".join([f"{error!s:.1500}", *places[:_PLACES]])
        except Exception as error:  # whatever it is, it is the answer
            return f"{type(error).__name__}: {error!s:.1500}"
        return ""


if __name__ == "__main__":
    sys.exit(main())
