"""Every cell of the capability table: what it offers works, and what it does not offer is refused and does not work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import rankwise as dist
from rankwise.kits import COLLECTIVES, DTYPES, OPS, REDUCE_OPS, Support
from rankwise_testing.suite.arrays import why_not
from rankwise_testing.suite.plugin import Kit
from rankwise_testing.suite.worlds import REDUCING


def _cells() -> Iterator[Any]:
    for op in OPS:
        for reduce in REDUCE_OPS if op in REDUCING else (None,):
            for dtype in DTYPES if op != "barrier" else ("float32",):
                words = [op, reduce, dtype if op != "barrier" else None]
                yield pytest.param(op, reduce, dtype, id="-".join(word for word in words if word))


@pytest.mark.parametrize(("op", "reduce", "dtype"), list(_cells()))
def test_cell(kit: Kit, request: pytest.FixtureRequest, op: str, reduce: str | None, dtype: str) -> None:
    """A declared cell works in worlds of two and three, and any other is refused; that it works is a note."""
    found, device = kit.measurements, kit.device
    declared = found.declares(op, reduce, dtype)
    reason = why_not(dtype, device)
    if reason and declared and device != "cpu":
        pytest.fail(f"declared, but no such array can be made: {reason}")
    if reason:
        pytest.skip(reason)
    kit.measured.append((op, reduce, dtype))
    kit.shown_by[op, reduce, dtype] = request.node.name
    alike = [d for d in DTYPES if found.declares(op, reduce, d) == declared and not why_not(d, device)]
    if declared:
        problem = found.problem((op, reduce, dtype), alike if op != "barrier" else ["float32"])
        assert not problem, f"declared, but does not work: {problem}"
        return
    problem = found.refusal_problem((op, reduce, dtype), alike if op != "barrier" else ["float32"])
    assert not problem, problem
    if found.is_refused_on_purpose(op):
        return
    if found.usable[op]:
        found.works_undeclared((op, reduce, dtype))  # the report tells; to offer fewer dtypes is no mistake
    elif dtype == kit.plain and found.works_undeclared((op, reduce, dtype)):
        kit.notes.append(f"{'-'.join(filter(None, (op, reduce)))} works, and is not declared ({request.node.name})")


def test_what_the_table_calls_native_the_backend_carries_out_itself(kit: Kit) -> None:
    """The collectives that are declared native are those that the communicator does not leave to the core."""
    cells = {op: kit.spec.capabilities.cell(op, kit.device) for op in COLLECTIVES}
    declared = sorted(op for op, cell in cells.items() if cell.support is Support.NATIVE)
    sure = {op for op, cell in cells.items() if cell.support in (Support.NATIVE, Support.DERIVED)}
    for own in kit.run(2, own_collectives):
        assert sorted(set(own) & sure) == declared


def own_collectives() -> list[str]:
    group = dist.group.WORLD
    assert group is not None
    return [op for communicator in group.communicators() for op in communicator.own_collectives()]
