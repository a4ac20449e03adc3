"""Calls that bring tensors from some ranks to others: `broadcast`, `allgather`, `alltoall` and the like."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed.distributed_c10d import (
    AllgatherOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ScatterOptions,
)

import rankwise
from rankwise_torch.issuing import Issuer
from rankwise_torch.options import Rows, Tensors, one, options, rooted, row
from rankwise_torch.tensors import Ending, filled, filled_there, read, read_there
from rankwise_torch.works import Done, Pending


class Gathers:
    """What of torch's groups moves tensors, and `barrier`."""

    under: rankwise.ProcessGroup
    issuer: Issuer

    def broadcast(
        self, tensors: Tensors, opts: Any = None, root: int | None = None, timeout: timedelta | None = None
    ) -> Done | Pending:
        """Copy the root's tensor into every rank's."""
        if type(opts) is not BroadcastOptions:
            opts = rooted(BroadcastOptions, opts, root, timeout=timeout)
        tensor = one("broadcast", tensors)
        copies: list[Ending] = []
        root = opts.rootRank
        is_source = root == self.under.rank()
        array = read_there(tensor, self.under) if is_source else filled_there(tensor, copies, self.under)
        return self.issuer.carry_out(rankwise.broadcast, (array,), opts, (tensor,), copies, group_src=root)

    def allgather(
        self, output_tensors: Rows, input_tensors: Tensors, opts: Any = None, timeout: timedelta | None = None
    ) -> Done | Pending:
        """Gather every rank's tensor in every rank's list."""
        if type(opts) is not AllgatherOptions:
            opts = options(AllgatherOptions, timeout=timeout or opts)
        outputs = row("allgather", output_tensors)
        copies: list[Ending] = []
        arrays = [filled(out, copies) for out in outputs], read(one("allgather", input_tensors))
        return self.issuer.carry_out(rankwise.all_gather, arrays, opts, outputs, copies)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Done | Pending:
        """Gather every rank's tensor in one tensor of every rank."""
        if type(opts) is not AllgatherOptions:
            opts = options(AllgatherOptions)
        copies: list[Ending] = []
        arrays = filled(output, copies), read(input)
        return self.issuer.carry_out(rankwise.all_gather_single, arrays, opts, (output,), copies)

    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Done | Pending:
        """Do an `all_gather_single` of each pair."""
        if type(opts) is not AllgatherOptions:
            opts = options(AllgatherOptions)
        copies: list[Ending] = []
        arrays = [(filled(out, copies), read(part)) for out, part in zip(outputs, inputs, strict=True)]
        return self.issuer.each(rankwise.all_gather_single, arrays, opts, outputs, copies)

    def allgather_coalesced(
        self, output_lists: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Done | Pending:
        """Gather several tensors: `output_lists[rank][i]` gets that rank's i-th one."""
        if type(opts) is not AllgatherOptions:
            opts = options(AllgatherOptions)
        copies: list[Ending] = []
        lists = [[filled(outputs[i], copies) for outputs in output_lists] for i in range(len(inputs))]
        arrays = [(outputs, read(part)) for outputs, part in zip(lists, inputs, strict=True)]
        result = [tensor for outputs in output_lists for tensor in outputs]
        return self.issuer.each(rankwise.all_gather, arrays, opts, result, copies)

    def gather(
        self, output_tensors: Rows, input_tensors: Tensors, opts: Any = None, root: Any = None, timeout: Any = None
    ) -> Done | Pending:
        """Gather every rank's tensor in the root's list."""
        if type(opts) is not GatherOptions:
            opts = rooted(GatherOptions, opts, root, timeout=timeout)
        outputs = row("gather", output_tensors)
        copies: list[Ending] = []
        lists = [filled(out, copies) for out in outputs] if self.under.rank() == opts.rootRank else None
        arrays = read(one("gather", input_tensors)), lists
        return self.issuer.carry_out(rankwise.gather, arrays, opts, outputs, copies, group_dst=opts.rootRank)

    def gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Done | Pending:
        """Gather every rank's tensor in one tensor of the root."""
        parts = output.chunk(self.under.size()) if self.under.rank() == opts.rootRank else ()
        return self.gather(parts, input, opts)

    def scatter(
        self, output_tensors: Tensors, input_tensors: Rows, opts: Any = None, root: Any = None, timeout: Any = None
    ) -> Done | Pending:
        """Give each rank a tensor from the root's list."""
        if type(opts) is not ScatterOptions:
            opts = rooted(ScatterOptions, opts, root, timeout=timeout)
        output = one("scatter", output_tensors)
        copies: list[Ending] = []
        is_root = self.under.rank() == opts.rootRank
        parts = [read(part) for part in row("scatter", input_tensors)] if is_root else None
        arrays = filled(output, copies), parts
        return self.issuer.carry_out(rankwise.scatter, arrays, opts, (output,), copies, group_src=opts.rootRank)

    def alltoall(
        self,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Done | Pending:
        """Give each rank one tensor of this one's list."""
        if type(opts) is not AllToAllOptions:
            opts = options(AllToAllOptions, timeout=timeout or opts)
        copies: list[Ending] = []
        arrays = [filled(out, copies) for out in outputs], [read(part) for part in inputs]
        return self.issuer.carry_out(rankwise.all_to_all, arrays, opts, outputs, copies)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Done | Pending:
        """Give each rank a part of this one's tensor."""
        if type(opts) is not AllToAllOptions:
            opts = options(AllToAllOptions, timeout=timeout or opts)
        copies: list[Ending] = []
        arrays = (
            *(filled(output, copies), read(input)),
            *(_elements(output, output_split_sizes), _elements(input, input_split_sizes)),
        )
        return self.issuer.carry_out(rankwise.all_to_all_single, arrays, opts, (output,), copies)

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Done | Pending:
        """Return once every rank has called."""
        if type(opts) is not BarrierOptions:
            opts = options(BarrierOptions, timeout=timeout or opts)
        return self.issuer.carry_out(rankwise.barrier, (), opts, ())

    gather_into_tensor = gather_single


def _elements(tensor: torch.Tensor, rows: Sequence[int]) -> list[int] | None:
    """Return split sizes in elements, since arrays are flat; None for equal parts."""
    if not rows:
        return None
    each = tensor[0].numel() if tensor.dim() and tensor.shape[0] else 1
    return [each * count for count in rows]
