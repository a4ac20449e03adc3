"""Rows about calls, and what they move."""

from __future__ import annotations

from copies import END, Edit
from trial import PAGES, SUITE, Trial

__all__ = ["ALGORITHM", "COLLECTIVE", "DTYPE", "ERROR", "FEATURE", "FUNCTION", "REDUCE_OP"]

COLLECTIVE = Trial(
    "a new collective",
    (
        Edit(
            "core/rankwise/collective/algorithms/rounds.py",
            '''

def scan_chain(rank: int, size: int) -> Rounds:
    """Pass the sum of all ranks before along a chain."""
    if rank > 0:
        yield (Recv(rank - 1, range(size), combine=True, left=True),)
    if rank < size - 1:
        yield (Send(rank + 1, range(size)),)
''',
            END,
        ),
        Edit(
            "core/rankwise/collective/algorithms/table.py",
            '\n        "scan": {"chain": rounds.scan_chain},',
            '"barrier": {"dissemination": rounds.barrier_dissemination},',
        ),
        Edit(
            "core/rankwise/collective/algorithms/table.py",
            '\n        "scan": (AlgorithmChoice("chain"),),',
            '"barrier": (AlgorithmChoice("dissemination"),),',
        ),
        Edit(
            "core/rankwise/collective/described.py",
            '''

def scan(by: Steps, call: Any) -> None:
    """Reduce the arrays of this rank and all before it into its array."""
    from rankwise.collective.algorithms.table import algorithm

    assert call.reduce_op is not None
    total = by.accumulator(call.reduce_op, call.array)
    blocks = [total[total.size * i // by.size : total.size * (i + 1) // by.size] for i in range(by.size)]
    by.rounds(algorithm("scan", call.array.nbytes, by.size), blocks, blocks, call.reduce_op)
    by.finish(call.reduce_op, total, call.array)
''',
            END,
        ),
        Edit(
            "core/rankwise/collective/call.py",
            "\nfrom rankwise.collective.described import Described, scan",
            "from rankwise.basics.reduce_op import ReduceOp",
        ),
        Edit(
            "core/rankwise/collective/call.py",
            '    "scan": Operation(same_shape, Described(scan), reduces=True),\n',
            "OPERATIONS: dict[str, Operation] = {\n",
        ),
        Edit(
            "core/rankwise/calls/collectives.py",
            '''

def scan(
    tensor: AnyArray,
    op: ReduceOp = ReduceOp.SUM,
    group: GroupLike = None,
    async_op: bool = False,
    timeout: Timeout | None = None,
) -> Work | None:
    """Reduce the arrays of this rank and all before it, in place."""
    pg = None
    try:
        if (pg := resolve(group, "scan")) is None:
            return None
        plain = "scan", tensor, op, -1, None, None
        if async_op:
            if (work := issued(pg, "described", tensor, timeout, *plain)) is not None:
                return work
        elif pg.shortcuts.described(*plain, timeout):
            return None
        array, remark = check.output_array(pg, "scan", "tensor", tensor), ""
        call = Call("scan", array, check.reduce_op(pg, "scan", op, array), remark=remark)
        return carry_out(pg, call, tensor, async_op, timeout, filled=array)
    except BaseException as error:
        failed(pg, error)
        raise
''',
            END,
        ),
        Edit("core/rankwise/__init__.py", "\nfrom rankwise.calls.collectives import scan", "import ReduceOp"),
        Edit("core/rankwise/__init__.py", '\n    "scan",', '    "ReduceOp",'),
        Edit(
            f"{SUITE}/exercises.py",
            """

def _scan(case: Case, here: _Here) -> Exercise:
    array = here.mine()

    def check() -> None:
        same(array, oracle.reduced(case.dtype, case.reduce or "SUM", case.count, here.rank + 1))

    return Exercise(lambda **terms: dist.scan(array, here.op(), group=here.group, **terms), check)


EXERCISES["scan"] = _scan
""",
            END,
        ),
    ),
    """
import numpy as np
import rankwise as dist
from rankwise_testing.suite.exercises import Case, perform

dist.init_process_group("gloo")
rank = dist.get_rank()
for terms in ({}, {}, {"timeout": 30.0}, {"async_op": True}):
    array = np.arange(3.0) + 10**rank
    work = dist.scan(array, **terms)
    if work is not None:
        work.wait()
    assert array.tolist() == ([1, 2, 3], [11, 13, 15])[rank], array
perform(Case("scan", "int32", "MAX"))
try:
    dist.scan(np.ones(1 + rank))
    raise SystemExit("ranks that disagree were not told")
except dist.CollectiveMismatchError as error:
    assert "did not make the same call" in str(error)
dist.destroy_process_group()
""",
    (Edit("docs/api/collectives.md", "\n        - scan", "        - barrier"),),
    f"{PAGES}test_what_is_generated_is_fresh[scripts/stub.py]",
    ranks=2,
)

ALGORITHM = Trial(
    "a new algorithm",
    (
        Edit(
            "core/rankwise/collective/algorithms/rounds.py",
            '''

def broadcast_chain(rank: int, size: int, root: int) -> Rounds:
    """Pass all blocks along a chain that begins at the root."""
    place = (rank - root) % size
    if place > 0:
        yield (Recv((rank - 1) % size, range(size)),)
    if place < size - 1:
        yield (Send((rank + 1) % size, range(size)),)
''',
            END,
        ),
        Edit(
            "core/rankwise/collective/algorithms/table.py",
            '\n            "chain": rounds.broadcast_chain,',
            '"flat": rounds.broadcast_flat,',
        ),
        Edit(
            "core/rankwise/collective/algorithms/table.py",
            '\n            AlgorithmChoice("chain", 7),',
            '"broadcast": (',
        ),
    ),
    """
import io
from contextlib import redirect_stdout

from rankwise.cli import main
from rankwise.collective.algorithms.table import ALGORITHMS
from rankwise_testing.proof import prove

for size in (2, 3, 5):
    for root in range(size):
        prove("broadcast", ALGORITHMS["broadcast"]["chain"], size, root)
with redirect_stdout(io.StringIO()) as said:
    assert main(["explain", "broadcast", "--bytes", "7", "--ranks", "3", "--backend", "derived"]) == 0
assert "chain" in said.getvalue()
""",
)

REDUCE_OP = Trial(
    "a new reduce op",
    (
        Edit(
            "core/rankwise/basics/reduce_op.py",
            '    "FMAX": Op(np.fmax, _ORDERED - {"datetime64", "timedelta64"}),\n',
            "REDUCE_OP_TABLE: dict[str, Op] = {\n",
        ),
        Edit("core/rankwise/basics/reduce_op.py", "\n    FMAX: ClassVar[ReduceOp]", "    MAX: ClassVar[ReduceOp]"),
    ),
    """
import numpy as np
import rankwise as dist

dist.init_process_group("gloo")
for _ in range(2):
    array = np.array([np.nan, 1.0 + dist.get_rank()]) if dist.get_rank() else np.array([7.0, np.nan])
    dist.all_reduce(array, dist.ReduceOp.FMAX)
    assert array.tolist() == [7, 2], array
assert dist.supports("all_reduce", "cpu", reduce_op="FMAX", dtype="float64", backend="gloo")
dist.destroy_process_group()
""",
    noticed=f"{PAGES}test_what_is_generated_is_fresh[scripts/tables.py]",
    ranks=2,
)

DTYPE = Trial(
    "a new dtype",
    (Edit("core/rankwise/basics/arrays.py", '"float8_e4m3", ', '*("bfloat16", '),),
    """
import numpy as np
import rankwise as dist
from ml_dtypes import float8_e4m3

dist.init_process_group("gloo")
array = np.ones(3, float8_e4m3) * (dist.get_rank() + 1)
dist.all_reduce(array)
assert array.astype(float).tolist() == [3, 3, 3]
assert dist.supports("broadcast", "cpu", dtype="float8_e4m3", backend="gloo")
dist.destroy_process_group()
""",
    noticed=f"{PAGES}test_what_is_generated_is_fresh[scripts/tables.py]",
    ranks=2,
)

FUNCTION = Trial(
    "a new public function",
    (
        Edit(
            "core/rankwise/groups/queries.py",
            '''

def get_last_rank(group: GroupLike = None) -> int:
    """Return the highest rank of a group."""
    return get_world_size(group) - 1
''',
            END,
        ),
        Edit("core/rankwise/__init__.py", "\nfrom rankwise.groups.queries import get_last_rank", "import ReduceOp"),
        Edit("core/rankwise/__init__.py", '\n    "get_last_rank",', '    "get_rank",'),
    ),
    """
import rankwise as dist

dist.init_process_group("gloo", rank=0, world_size=1)
assert dist.get_last_rank() == 0
""",
    noticed="tests/core/test_tracebacks.py::test_what_is_public_shortens_what_it_raises[get_last_rank]",
    anywhere="core/rankwise/groups/queries.py",
)

ERROR = Trial(
    "a new error",
    (
        Edit(
            "core/rankwise/errors.py",
            '''

class TiredError(DistError):
    """The ranks need a rest."""
''',
            END,
        ),
        Edit("core/rankwise/errors.py", '\n    "TiredError",', '    "RendezvousError",'),
        Edit(
            "core/rankwise/errors.py",
            "\n        ├── TiredError                  the ranks need a rest",
            "        ├── RendezvousError             the ranks that met do not form one world",
        ),
    ),
    """
import pickle
from rankwise.errors import DistError, TiredError

assert issubclass(TiredError, DistError)
assert str(pickle.loads(pickle.dumps(TiredError("rank 3 rests")))) == "rank 3 rests"
""",
    (
        Edit(
            "docs/errors.md",
            "\n    ├── TiredError",
            "    ├── RendezvousError",
        ),
        Edit("docs/errors.md", "\n## TiredError\n\nThe ranks need a rest.\n", END),
    ),
    f"{PAGES}test_every_error_has_its_section_and_its_place_in_the_tree",
)

FEATURE = Trial(
    "a new feature that backends declare",
    (
        Edit(
            "core/rankwise/backends/vocabulary.py",
            '        "echo": "messages come back",\n',
            "FEATURES: Mapping[str, str] = MappingProxyType(\n    {\n",
        ),
    ),
    """
import numpy as np
import rankwise as dist
from rankwise.groups.world import resolve

dist.init_process_group("gloo", rank=0, world_size=1)
assert dist.supports("echo", "cpu", backend="gloo") is False
try:
    resolve(None, "send").require_feature("echo", "cpu", "send")
except dist.UnsupportedOperationError as error:
    assert "echo" in str(error)
else:
    raise SystemExit("it was not refused")
""",
)
