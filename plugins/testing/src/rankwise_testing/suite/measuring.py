"""Measures cells of the table: whether each works on every rank, is refused, or works although it is not declared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import rankwise as dist
from rankwise.errors import UnsupportedOperationError
from rankwise.kits import (
    COLLECTIVES,
    FEATURES,
    OPS,
    POINT_TO_POINT,
    REDUCTIONS,
    BackendSpec,
    Capabilities,
    Device,
    Support,
    derived,
    registry,
)
from rankwise_testing.suite.exercises import Case, perform, prepare
from rankwise_testing.suite.place import JoinPlan
from rankwise_testing.suite.worlds import LARGE_SIZES, REDUCING, Ranks

#: An operation, the name of a reduce op or None, and the name of a dtype.
CellName = tuple[str, str | None, str]

_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_COUNTS = (0, 1, 5)
_SIZES = (2, 3)

#: After so many failures of one operation the rest of its cells are not tried.
_ENOUGH = 3
_UNDECLARED = "_undeclared"


class Measurements:
    """What the ranks have shown so far."""

    def __init__(self, ranks: Ranks, spec: BackendSpec) -> None:
        self.ranks, self.spec, self.device = ranks, spec, ranks.device
        self._worked: dict[CellName, str] = {}
        self._refused: dict[CellName, str] = {}
        self._undeclared: dict[CellName, bool] = {}
        #: The sizes of small worlds that can be made, the smallest first.
        self.sizes = [size for size in range(1, LARGE_SIZES[-1] + 1) if size in spec.capabilities.sizes]
        #: Those on which cells are measured, and that of their refusals.
        self._measured_sizes = [size for size in _SIZES if size in self.sizes] or self.sizes[:1]
        self._pair = self._measured_sizes[0]

    @cached_property
    def usable(self) -> dict[str, bool]:
        """Which operations and features the table offers, as the ranks' own processes see it."""
        found: dict[str, bool] = self.ranks.run(self.sizes[0], _usable, self.spec.name, self.device)[0]
        return found

    def declares(self, op: str, reduce: str | None, dtype: str) -> bool:
        """Tell whether the table offers a cell."""
        cell = self.spec.capabilities.cell(op, self.device)
        return self.usable[op] and (op == "barrier" or cell.takes(dtype, reduce))

    def problem(self, name: CellName, dtypes: Sequence[str]) -> str:
        """Return what is wrong with a cell that should work, nothing if it works; `dtypes` are measured with it."""
        if name not in self._worked:
            op, reduce, _ = name
            self._worked.update(self._measure([(op, reduce, dtype) for dtype in dtypes]))
        return self._worked[name]

    def refusal_problem(self, name: CellName, dtypes: Sequence[str]) -> str:
        """Return what is wrong with the refusal of a cell; `dtypes` are asked for with it."""
        if name not in self._refused:
            op, reduce, _ = name
            cases = [Case(op, dtype, reduce) for dtype in dtypes]
            named = self.usable[op]
            answers = self.ranks.run(self._pair, refusals, cases, self.device, named)
            for case, texts in zip(cases, zip(*answers, strict=True), strict=True):
                self._refused[op, reduce, case.dtype] = next((text for text in texts if text), "")
        return self._refused[name]

    def works_undeclared(self, name: CellName) -> bool:
        """Tell whether a cell works when the table does not stand in the way."""
        if name not in self._undeclared:
            op, reduce, dtype = name
            self._undeclared[name] = self._defined(name) and self._works_unguarded(Case(op, dtype, reduce))
        return self._undeclared[name]

    def try_undeclared(self, function: Callable[..., bool], *args: Any) -> bool:
        """Tell whether a function that joins by `join_unguarded` returns true on all ranks of a small world."""
        try:
            return all(self.ranks.run_outside(self._pair, function, *args))
        except Exception:  # crashing and hanging are ways of not working
            return False
        finally:
            with suppress(KeyError):  # it is in this process if ranks are threads
                registry.unregister(self.spec.name + _UNDECLARED)

    def worked(self, name: CellName) -> bool:
        """Tell whether a cell was found to work, declared or not."""
        return self._worked.get(name) == "" or self._undeclared.get(name, False)

    def is_refused_on_purpose(self, op: str) -> bool:
        """Tell whether the backend says why it does not offer an operation, or not for all dtypes."""
        cell = self.spec.capabilities.cell(op, self.device)
        return bool(cell.reason) and not (self.usable[op] and cell.support is Support.CONDITIONAL)

    def _measure(self, names: list[CellName]) -> dict[CellName, str]:
        problems = dict.fromkeys(names, "")
        for size in self._measured_sizes:
            cases = [case for name in names if not problems[name] for case in _cases(name, size)]
            for case, text in self._problems(size, cases).items():
                name = (case.op, case.reduce, case.dtype)
                problems[name] = problems[name] or f"with {size} ranks, {case}: {text}"
        return problems

    def _problems(self, size: int, cases: list[Case]) -> dict[Case, str]:
        found: dict[Case, str] = {}
        while cases:
            if len(found) >= _ENOUGH:
                return {**found, **dict.fromkeys(cases, "not tried, as too many others had failed")}
            index, text = self._first_problem(size, cases)
            if index < len(cases):
                found[cases[index]] = text
            # What is wrong with a cell shows in the first of its cases; the others would only cost time.
            cases = [case for case in cases[index + 1 :] if replace(case, count=0, root=0) not in _cells(found)]
        return found

    def _first_problem(self, size: int, cases: list[Case]) -> tuple[int, str]:
        """Return the index of the first case that fails, and why."""
        try:
            answers = self.ranks.run(size, try_cases, cases)
        except Exception as error:  # a rank that crashed or stood still cannot say in which case
            if len(cases) == 1:
                return 0, str(error)
            half = len(cases) // 2
            index, text = self._first_problem(size, cases[:half])
            if text:
                return index, text
            index, text = self._first_problem(size, cases[half:])
            return half + index, text
        # Of the ranks that failed in one case, those that were told to stop say less.
        ends = [(len(texts) - bool(texts[-1]), "GroupAbortedError" in texts[-1], texts[-1]) for texts in answers]
        index, _, text = min(ends)
        if text:
            self.ranks.renew()
        return index, text

    def _defined(self, name: CellName) -> bool:
        op, reduce, dtype = name
        return op not in REDUCING or dtype in REDUCTIONS[reduce or "SUM"]

    def _works_unguarded(self, case: Case) -> bool:
        return self.try_undeclared(try_unguarded, self.spec.name, case)


def try_cases(cases: list[Case]) -> list[str]:
    """Perform cases until one fails; return a text for each, which is empty where it went well."""
    texts: list[str] = []
    for case in cases:
        try:
            perform(case)
        except Exception as error:  # whatever it is, it is the answer
            group = dist.group.WORLD
            if group is not None:
                group.abort(f"as {case} failed")  # the others must not wait for this rank
            return [*texts, f"rank {dist.get_rank()}: {type(error).__name__}: {error}"]
        texts.append("")
    return texts


def refusals(cases: list[Case], device: str, named: bool) -> list[str]:
    """Make calls that the table forbids; return for each what is wrong with its refusal."""
    return [_refusal(case, device, named) for case in cases]


def try_unguarded(meeting: JoinPlan, rank: int, backend: str, case: Case) -> bool:
    """Tell whether a case works with a table that allows everything."""
    join_unguarded(meeting, rank, backend)
    try:
        perform(case)
    except Exception:  # the question is only whether it works
        return False
    return True


def join_unguarded(meeting: JoinPlan, rank: int, backend: str) -> None:
    """Join a world of the backend under another name, with a table that allows everything."""
    spec = registry.get(backend)
    open_name = backend + _UNDECLARED
    features = {**derived(*FEATURES)}
    ops = {**derived(*POINT_TO_POINT, *COLLECTIVES)}
    table = Capabilities(open_name, {device: Device(ops, features) for device in spec.capabilities.devices})
    registry.register(replace(spec, name=open_name, capabilities=table), replace=True)
    replace(meeting, backend=meeting.backend + _UNDECLARED, timeout_s=5.0).join(rank)


def _usable(backend: str, device: str) -> dict[str, bool]:
    table = registry.get(backend).capabilities
    return {name: table.cell(name, device).usable for name in (*OPS, *FEATURES)}


def _refusal(case: Case, device: str, named: bool) -> str:
    call = prepare(case).call
    try:
        call()
    except UnsupportedOperationError as error:
        # A message is refused at whichever end comes first.
        ops = POINT_TO_POINT if case.op in POINT_TO_POINT else (case.op,)
        op = next((op for op in ops if op in str(error)), case.op)
        words = [op, device, *([case.dtype] if named and case.op != "barrier" else [])]
        missing = [word for word in words if word not in str(error)]
        return f"the refusal does not name {', '.join(missing)}: {error}" if missing else ""
    except Exception as error:  # it should have been refused first
        return f"not refused, but failed with {type(error).__name__}: {error}"
    return "not refused: the call was made"


def _cases(name: CellName, size: int) -> list[Case]:
    op, reduce, dtype = name
    if op == "barrier":
        return [Case(op)]
    return [Case(op, dtype, reduce, count, size - 1 if op in _ROOTED else 0) for count in _COUNTS]


def _cells(cases: dict[Case, str]) -> set[Case]:
    return {replace(case, count=0, root=0) for case in cases}
