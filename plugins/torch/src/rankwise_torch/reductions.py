"""Calls that reduce: `allreduce`, `reduce`, `reduce_scatter` and the like."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed.distributed_c10d import (
    AllreduceCoalescedOptions,
    AllreduceOptions,
    ReduceOptions,
    ReduceScatterOptions,
)

import rankwise
from rankwise_torch.issuing import Issuer
from rankwise_torch.operators import averaging, operator_of
from rankwise_torch.options import Rows, Tensors, one, options, rooted, row
from rankwise_torch.sparse import summed
from rankwise_torch.tensors import Ending, filled, filled_there, memory_of, read, read_there
from rankwise_torch.works import Done, Pending


class Reductions:
    """What of torch's groups reduces."""

    under: rankwise.ProcessGroup
    issuer: Issuer

    def allreduce(
        self, tensors: Tensors, opts: Any = None, op: Any = None, timeout: timedelta | None = None
    ) -> Done | Pending:
        """Reduce into every rank's tensor."""
        if type(opts) is not AllreduceOptions:
            opts = options(AllreduceOptions, reduceOp=opts or op, timeout=timeout)
        tensor = one("allreduce", tensors)
        if tensor.layout is not torch.strided:
            sparse = summed(tensor, opts.reduceOp)
            return self.issuer.carry_out(rankwise.all_reduce, (sparse.array,), opts, (tensor,), [sparse])
        copies: list[Ending] = []
        arrays = self._with_op(filled_there(tensor, copies, self.under), opts, copies)
        return self.issuer.carry_out(rankwise.all_reduce, arrays, opts, (tensor,), copies)

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Done | Pending:
        """Reduce several tensors, each into every rank's."""
        if type(opts) is not AllreduceCoalescedOptions:
            opts = options(AllreduceCoalescedOptions)
        copies: list[Ending] = []
        arrays = [self._with_op(filled_there(tensor, copies, self.under), opts, copies) for tensor in tensors]
        return self.issuer.each(rankwise.all_reduce, arrays, opts, tensors, copies)

    def reduce(
        self, tensors: Tensors, opts: Any = None, root: int | None = None, op: Any = None, timeout: Any = None
    ) -> Done | Pending:
        """Reduce into the root's tensor."""
        if type(opts) is not ReduceOptions:
            opts = rooted(ReduceOptions, opts, root, reduceOp=op, timeout=timeout)
        tensor = one("reduce", tensors)
        copies: list[Ending] = []
        root = opts.rootRank
        is_root = root == self.under.rank()
        array = filled_there(tensor, copies, self.under) if is_root else read_there(tensor, self.under)
        _, op = self._with_op(array, opts, copies if is_root else [])
        more = {"op": op, "group_dst": root}
        return self.issuer.carry_out(rankwise.reduce, (array,), opts, (tensor,), copies, **more)

    def reduce_scatter(
        self, output_tensors: Tensors, input_tensors: Rows, opts: Any = None, op: Any = None, timeout: Any = None
    ) -> Done | Pending:
        """Reduce the ranks' lists of tensors, and give each rank one of the results."""
        if type(opts) is not ReduceScatterOptions:
            opts = options(ReduceScatterOptions, reduceOp=opts or op, timeout=timeout)
        output = one("reduce_scatter", output_tensors)
        copies: list[Ending] = []
        inputs = [read(tensor) for tensor in row("reduce_scatter", input_tensors)]
        array, op = self._with_op(filled(output, copies), opts, copies)
        arrays = array, inputs, op
        return self.issuer.carry_out(rankwise.reduce_scatter, arrays, opts, (output,), copies)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Done | Pending:
        """Reduce the ranks' tensors, and give each rank a part of the result."""
        if type(opts) is not ReduceScatterOptions:
            opts = options(ReduceScatterOptions)
        copies: list[Ending] = []
        array, op = self._with_op(filled(output, copies), opts, copies)
        arrays = array, read(input), op
        return self.issuer.carry_out(rankwise.reduce_scatter_single, arrays, opts, (output,), copies)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Done | Pending:
        """Do a `reduce_scatter_single` of each pair."""
        if type(opts) is not ReduceScatterOptions:
            opts = options(ReduceScatterOptions)
        copies: list[Ending] = []
        pairs = list(zip(outputs, inputs, strict=True))
        given = [(*self._with_op(filled(out, copies), opts, copies), read(whole)) for out, whole in pairs]
        arrays = [(array, whole, op) for array, op, whole in given]
        return self.issuer.each(rankwise.reduce_scatter_single, arrays, opts, outputs, copies)

    def _with_op(self, array: Any, opts: Any, copies: list[Ending]) -> tuple[Any, rankwise.ReduceOp]:
        """Return an array and the op that reduces it."""
        op = operator_of(opts.reduceOp)
        return array, averaging(op, memory_of(array), self.under.size(), copies) if op.name == "AVG" else op
