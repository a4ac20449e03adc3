"""Random cells of backends' tables: what `supports` and `ask` answer of each call, and what the call then does.

    python benchmarks/cells.py                            # 600 cells each of gloo, mpi, local, wire and a device
    python benchmarks/cells.py gloo --cells 3000 --seed 1
    python benchmarks/cells.py entangled --device quantum

A cell is an operation with a dtype and a reduce op, whether the table offers it or not, of any count and root, in the
world or in a part of it, blocking or not, with a time-out or without. A cell is wrong if the call is offered, and is
refused or has another result than NumPy's; if it is not offered, and is made; or if a collective is done in another way
than is said: native, derived, or staged by way of the host. Beside the cells each public call is asked about and made,
in forms that are drawn. Ranks draw the same, so that a seed replays all.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.core.asking import answers_that_are_wrong  # noqa: E402

import rankwise as dist  # noqa: E402
import rankwise_local  # noqa: E402, F401 - registers "local"
from rankwise.backends.registry import registry  # noqa: E402
from rankwise.backends.vocabulary import COLLECTIVES, OPS, reducing  # noqa: E402
from rankwise.basics.arrays import DTYPES  # noqa: E402
from rankwise.basics.reduce_op import REDUCE_OPS  # noqa: E402
from rankwise.collective.call import Call  # noqa: E402
from rankwise_testing.suite.arrays import why_not  # noqa: E402
from rankwise_testing.suite.exercises import Case, prepare  # noqa: E402
from rankwise_testing.suite.worlds import make_ranks  # noqa: E402

#: What is tried where nothing is named, and on which device.
ALL = {"gloo": "cpu", "mpi": "cpu", "local": "cpu", "wire": "cpu", "entangled": "quantum"}
#: Those of the repository that nobody has installed: where their modules are, and what pip would write.
BROUGHT = {
    "rankwise_wire": ("examples/wire/src", "[rankwise.backends]\nwire = rankwise_wire\n"),
    "quantum_sim": (
        "tests/devices",
        "[rankwise.devices]\nquantum = quantum_sim.plugin:QUANTUM\n"
        "[rankwise.backends]\nentangled = quantum_sim.plugin\n",
    ),
}
#: Ranks in a container, and more of them than cores.
OF_OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
SIZES = (2, 3, 4)
AT_ONCE = 50
PATIENCE_S = 300.0


class Cell(NamedTuple):
    """A call that is drawn."""

    case: Case
    is_async: bool
    has_timeout: bool
    in_group: bool

    @property
    def features(self) -> tuple[str, ...]:
        return (*(["async"] if self.is_async else []), *(["timeout"] if self.has_timeout else []))


def drawn(device: str, seed: int, size: int) -> Iterator[Cell]:
    """Yield cells without end."""
    dice = random.Random(f"{device} {seed} {size}")
    dtypes = [dtype for dtype in DTYPES if not why_not(dtype, device)]
    while True:
        op = dice.choice([*OPS, *2 * sorted(reducing())])  # which have most of the cells that are not offered
        reduce = dice.choice(list(REDUCE_OPS)) if op in reducing() else None
        in_group = size > 2 and dice.random() < 0.3
        count = dice.choice([0, 1, 2, 3, 17, 300, dice.randrange(5_000), dice.randrange(60_000)])
        root = dice.randrange(size - 1 if in_group else size)
        case = Case(op, dice.choice(dtypes), reduce, count, root, dice.randrange(50))
        is_async = dice.random() < 0.4 and op in COLLECTIVES
        yield Cell(case, is_async, not is_async and dice.random() < 0.3, in_group)


def try_cells(backend: str, device: str, seed: int, count: int) -> tuple[int, list[str]]:
    """Be a rank: ask about cells, make the calls, and return how many were offered, and what was wrong."""
    size, offered, wrong = dist.get_world_size(), 0, []
    world = dist.group.WORLD
    part = dist.new_group(list(range(size - 1, 0, -1)), sort_ranks=False) if size > 2 else None
    asked = {group: _watched(group) for group in (world, part) if isinstance(group, dist.ProcessGroup)}
    for number, cell in zip(range(count), drawn(device, seed, size), strict=False):
        group = part if cell.in_group else world
        if isinstance(group, dist.ProcessGroup):
            is_offered, problem = _tried(cell, backend, device, group, asked[group])
            offered += is_offered
            wrong += [f"{backend} {device}, seed {seed}, {size} ranks, call {number}: {problem}"] if problem else []
    return offered, wrong


def _tried(cell: Cell, backend: str, device: str, group: dist.ProcessGroup, asked: list[str]) -> tuple[bool, str]:
    """Return whether a call is offered, and what was wrong with the answers or the result."""
    op, dtype = cell.case.op, None if cell.case.op == "barrier" else cell.case.dtype
    terms: dict[str, Any] = {"features": cell.features, "size": dist.get_world_size(group)}
    says = dist.capabilities(backend).ask(op, device, dtype, cell.case.reduce, **terms)[backend]
    if dist.supports(op, device, dtype, cell.case.reduce, backend, **terms) != says.supported:
        return says.supported, f"{cell}: supports and ask disagree"
    asked.clear()
    problem = _problem(cell, group, says.supported)
    if says and not problem and op in COLLECTIVES and op != "barrier":
        own = {name for communicator in group.communicators() for name in communicator.own_collectives()}
        done = _way(asked, op in own)
        problem = "" if says.how == done else f"ask says that it is {says.how}, and it was {done}"
    return says.supported, f"{cell}: {problem}" if problem else ""


def _problem(cell: Cell, group: dist.ProcessGroup, offered: bool) -> str:
    """Make a call, and return what is wrong with what it did; the others must not wait for a rank that fails."""
    exercise = prepare(cell.case, group)
    terms: dict[str, Any] = {"timeout": 20.0} if cell.has_timeout else {}
    try:
        if (work := exercise.call(**terms, **({"async_op": True} if cell.is_async else {}))) is not None:
            work.wait()
        if offered:
            exercise.check()
    except dist.UnsupportedOperationError as error:
        return f"it is offered, and was refused: {error}" if offered else ""
    except AssertionError as error:
        return str(error)
    except Exception as error:
        dist.abort_process_group(group)
        return f"{type(error).__name__}: {error}"
    return "" if offered else "it is not offered, and was made"


def _watched(group: dist.ProcessGroup) -> list[str]:
    """Return where to find what the backends of a group ask of the core for the call that was made last."""
    asked: list[str] = []

    class Watched(Call):
        def derived(self, comm: Any) -> Any:
            asked.append("derived")
            return super().derived(comm)

        def staged(self, comm: Any) -> Any:
            asked.append("staged")
            return super().staged(comm)

    def algorithm(real: Callable[[Call], Any], call: Call) -> Any:
        return real(Watched(*[getattr(call, field.name) for field in fields(call)]))

    for communicator in group.communicators():
        communicator.algorithm = partial(algorithm, communicator.algorithm)  # type: ignore[method-assign]
    return asked


def _way(asked: list[str], is_own: bool) -> str:
    """Return how it was done; what is a backend's own it may leave to the core where that does not fit an array."""
    if "staged" in asked:
        return "staged"
    return "native" if is_own else "derived" if asked else "by nobody"


def try_backend(backend: str, device: str, cells: int, seed: int) -> tuple[int, int, list[str]]:
    """Return how many calls were made in worlds of several sizes, how many were offered, and what was wrong."""
    ranks, made, offered, wrong = make_ranks(registry.get(backend), device, (), {}, None, PATIENCE_S), 0, 0, []
    try:
        for number in range(-(-cells // AT_ONCE)):
            size = SIZES[number % len(SIZES)]
            answers = ranks.run_alone(size, try_cells, backend, device, seed + number, AT_ONCE)
            made, offered = made + AT_ONCE, offered + answers[-1][0]
            wrong += [text for _, texts in answers for text in texts]
        for texts in ranks.run_alone(2, answers_that_are_wrong, backend, cells // 3, seed, device):
            wrong += texts
    finally:
        ranks.close()
    return made, offered, wrong


def main() -> int:
    """Make the calls, and return 1 if one was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="*", default=list(ALL), help=f"by default {', '.join(ALL)}")
    parser.add_argument("--device", help="where the arrays lie (default: the host; of entangled, quantum)")
    parser.add_argument("--cells", type=int, default=600, help="how many of each backend (default: 600)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _bring(Path(folder))
        wrong: list[str] = []
        for backend in options.backends:
            device = options.device or ALL.get(backend, "cpu")
            made, offered, found = try_backend(backend, device, options.cells, options.seed)
            ways = f"{offered} offered and {made - offered} not"
            print(f"{backend} {device}: {made} random calls, {ways}, {len(found)} wrong", flush=True)
            wrong += found
    print(*wrong[:20], sep="\n")
    return bool(wrong)


def _bring(folder: Path) -> None:
    """Put those on the path that the repository has and nobody has installed."""
    for module, (place, points) in BROUGHT.items():
        info = folder / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(points)
        sys.path.append(str(ROOT / place))
    sys.path.append(str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # of ranks
    for name, value in OF_OPEN_MPI.items():
        os.environ.setdefault(name, value)


if __name__ == "__main__":
    raise SystemExit(main())
