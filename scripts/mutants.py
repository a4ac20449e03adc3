"""Plant mistakes in a room, a file or folder of the code, one at a time, and show those that its tests do not notice.

A mutant differs from the code in one place: another comparison, operator or number, `and` for `or`, a condition turned
round, a statement, an early return or a keyword argument that is missing. Its tests run in a copy of the tree, up to
the first that fails; those that take much too long have noticed it too. A survivor asks for a sharper test, unless it
is no mistake.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from rankwise_testing.mutants import Mutant, Trial, mutants, try_all

#: The tests of a room in `tests/core`: fast ones alone, on threads. The longest beginning of its path counts. Without a
#: row those of `core/rankwise/NAME` begin with its name, and those of a plugin are in its folder of `tests/plugins`.
TESTS = {
    "core/rankwise/basics/ending": "ending work_futures work",
    "core/rankwise/basics/reduce_op": "reduce_op capability check derived",
    "core/rankwise/basics": "deadline errors arrays arguments_matrix ending work_futures work",
    "core/rankwise/calls": "check calling several_arrays overlap arrays work arguments_matrix groups",
    "core/rankwise/collective/issue_order": "issue_order ending work_futures work",
    "core/rankwise/collective/algorithms": "algorithms derived",
    "core/rankwise/collective": "fingerprint issue_order turn outside callers derived",
    "core/rankwise/store": "store_queues store_foreign store",
}
#: How many are tried at once.
_AT_ONCE = 2


def tests_of(room: Path) -> list[str]:
    """Return where a room's tests are."""
    name = str(room.with_suffix(""))
    if rows := [row for row in TESTS if f"{name}/".startswith(f"{row}/")]:
        return [f"tests/core/test_{each}.py" for each in TESTS[max(rows, key=len)].split()]
    if room.parts[0] == "plugins":
        return [f"tests/plugins/{room.parts[1]}"]
    return sorted(map(str, Path("tests/core").glob(f"test_{Path(name).parts[2]}*.py")))


class Copy(Trial):
    """A copy of the tree in which tests run."""

    def __init__(self, root: Path, tests: list[str]) -> None:
        shutil.copytree(".", root, symlinks=True, ignore=shutil.ignore_patterns(".*", "__pycache__", "dist"))
        packages = [path.parent for path in root.glob("plugins/*/src/*/__init__.py") if find_spec(path.parent.name)]
        paths = [root, root / "core", *(path.parent for path in packages)]  # before what is installed
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        super().__init__(root, command, {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))})


def main() -> int:
    """Return 1 if there are survivors, and 2 if the tests fail by themselves."""
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("room", type=Path, help="a file or folder, such as core/rankwise/store")
    parser.add_argument("--limit", type=int, default=40, metavar="N", help="so many mutants (40)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="chooses which (0)")
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="in the place of the room's")
    given = parser.parse_args()
    every = mutants(given.room)
    chosen = random.Random(given.seed).sample(every, min(given.limit, len(every)))
    tests = given.tests or tests_of(given.room)
    print(f"{len(chosen)} of {len(every)} mutants of {given.room}; tests: {' '.join(tests)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        return _try(chosen, [Copy(Path(folder, str(number)), tests) for number in range(_AT_ONCE)])


def _try(chosen: list[Mutant], copies: list[Copy]) -> int:
    count = try_all(chosen, list(copies))
    if count is None:
        print("the tests fail without a mutant", file=sys.stderr)
        return 2
    print(f"{count['killed']} killed, {count['timed out']} timed out, {count['survived']} survived")
    return int(count["survived"] > 0)


if __name__ == "__main__":
    sys.exit(main())
