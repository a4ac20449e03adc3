"""Messages between two ranks, and blocks of calls that end together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from threading import get_ident
from typing import Any

import rankwise
import torch

from rankwise_torch.errors import as_torch_raises
from rankwise_torch.issuing import Issuing
from rankwise_torch.options import one
from rankwise_torch.profiling import event, is_profiling
from rankwise_torch.tensors import Filled, filled, read
from rankwise_torch.works import Done, Inner, Pending, Together

__all__ = ["Messages"]


class Messages(Issuing):
    """What of torch's groups sends and receives."""

    def send(self, tensors: Sequence[torch.Tensor], dst: int, tag: int = 0) -> Pending:
        """Begin to send a tensor."""
        tensor = one("send", tensors)
        return self._begin("send", partial(rankwise.isend, read(tensor), group_dst=dst), tensor, tag, ())

    def recv(self, tensors: Sequence[torch.Tensor], src: int, tag: int = 0) -> Pending:
        """Begin to receive a tensor from a rank."""
        tensor, copies = one("recv", tensors), []
        receive = partial(rankwise.irecv, filled(tensor, copies), group_src=src)
        return self._begin("recv", receive, tensor, tag, copies)

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int = 0) -> Pending:
        """Begin to receive a tensor from whoever sends one."""
        tensor, copies = one("recv", tensors), []
        return self._begin("recv", partial(rankwise.irecv, filled(tensor, copies)), tensor, tag, copies)

    def _start_coalescing(self, device: torch.device) -> None:
        """Begin a block of calls that `_end_coalescing` waits for together."""
        self.begun[get_ident()] = []

    def _end_coalescing(self, device: torch.device) -> Done | Pending:
        """End this thread's block."""
        works = self.begun.pop(get_ident(), [])
        if not works:
            return Done()
        return Pending(Together(works), [tensor for work in works for tensor in work.filled])

    def _begin(self, op: str, message: Any, tensor: torch.Tensor, tag: int, copies: Sequence[Filled]) -> Pending:
        with event(self.backend, op, (tensor,)) if is_profiling() else nullcontext(), as_torch_raises():
            inner: Inner = message(group=self.under, tag=tag)
        return self._noted(Pending(inner, (tensor,), copies, self.under.rank_of))
