"""How each call is carried out: now or later, with its time-out, an event for the profiler, errors of both kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from typing import Any

import torch

import rankwise
from rankwise_torch.errors import as_torch_raises, of_both
from rankwise_torch.options import timeout_of
from rankwise_torch.profiling import event, is_profiling
from rankwise_torch.tensors import Ending, put_back
from rankwise_torch.works import DONE, Copying, Done, Inner, Pending, Together


class Issuer:
    """Makes a group's calls of rankwise, one by one.

    Args:
        under: The group of rankwise.
        backend: The name by which torch knows the backend; events of the profiler have it.

    Attributes:
        sequence: How many collectives were issued.
        begun: For each thread between `_start_coalescing` and `_end_coalescing`, the works that it has begun there.
    """

    def __init__(self, under: rankwise.ProcessGroup, backend: str) -> None:
        self.under, self.backend = under, backend
        self.sequence = 0
        self.begun: dict[int, list[Pending]] = {}

    def carry_out(
        self,
        call: Callable[..., Any],
        arrays: tuple[Any, ...],
        opts: Any,
        result: Sequence[torch.Tensor],
        copies: Sequence[Ending] = (),
        **more: Any,
    ) -> Done | Pending:
        """Make a call of rankwise.

        Args:
            call: The function of rankwise.
            arrays: Its first arguments.
            opts: Torch's options, which tell the time-out and whether to wait.
            result: The tensors that the operation fills.
            copies: What is to be put back at its end.
            more: Further arguments of `call`.
        """
        self.sequence += 1
        if opts.timeout.days >= 0:
            more |= timeout_of(opts)
        if is_profiling():
            with event(self.backend, call.__name__, result):
                return self._issue(call, arrays, opts.asyncOp, result, copies, more)
        if opts.asyncOp or copies:
            return self._issue(call, arrays, opts.asyncOp, result, copies, more)
        try:  # as nearly all, without another frame
            call(*arrays, group=self.under, **more)
        except rankwise.DistError as error:
            raise of_both(error) from error.__cause__
        return DONE

    def _issue(
        self,
        call: Callable[..., Any],
        arrays: tuple[Any, ...],
        is_async: bool,
        result: Sequence[torch.Tensor],
        copies: Sequence[Ending],
        more: dict[str, Any],
    ) -> Done | Pending:
        try:
            if is_async:
                return self.pending(call(*arrays, group=self.under, async_op=True, **more), result, copies)
            call(*arrays, group=self.under, **more)
        except rankwise.DistError as error:
            raise of_both(error) from error.__cause__
        put_back(copies)
        return DONE

    def each(
        self,
        call: Callable[..., Any],
        arrays: Sequence[tuple[Any, ...]],
        opts: Any,
        result: Sequence[torch.Tensor],
        copies: Sequence[Ending],
        **more: Any,
    ) -> Done | Pending:
        """Make a call of rankwise for each of several tuples of arrays, all of which end as one."""
        self.sequence += 1
        more |= timeout_of(opts)
        if opts.asyncOp:
            more["async_op"] = True
        with event(self.backend, call.__name__, result), as_torch_raises():
            inners: list[Inner] = [call(*group, group=self.under, **more) for group in arrays]
        if opts.asyncOp:
            return self.pending(Together(inners), result, copies)
        put_back(copies)
        return DONE

    def pending(
        self,
        inner: Inner,
        result: Sequence[torch.Tensor],
        copies: Sequence[Ending],
        rank_of: Mapping[int, int] | None = None,
    ) -> Pending:
        """Return the work of an operation, and keep it for the end of this thread's coalescing block, if it has one."""
        work = Pending(Copying(inner, copies) if copies else inner, result, rank_of)
        if self.begun and (works := self.begun.get(get_ident())) is not None:
            works.append(work)
        return work
