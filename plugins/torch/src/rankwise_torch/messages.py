"""Messages between two ranks, and blocks of calls that end together.

Torch's blocking `send` and `recv` begin a message as `isend` and `irecv` do, and wait for it. Where they are seen to
have called, the message is sent or received immediately, without a work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from inspect import unwrap
from pathlib import Path
from threading import get_ident
from types import FrameType
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d

import rankwise
from rankwise_torch.errors import as_torch_raises
from rankwise_torch.issuing import Issuer
from rankwise_torch.options import one
from rankwise_torch.profiling import event, is_profiling
from rankwise_torch.tensors import Ending, filled, put_back, read
from rankwise_torch.works import DONE, Done, Inner, Pending, Received, Together

#: Where the frames are that lie between torch's functions and this module.
_OURS = str(Path(__file__).parent)
_BLOCKING = {unwrap(function).__code__ for function in (c10d.send, c10d.recv)}


class SendsAndReceives:
    """What of torch's groups sends and receives."""

    under: rankwise.ProcessGroup
    issuer: Issuer

    def send(self, tensors: Sequence[torch.Tensor], dst: int, tag: int = 0) -> Done | Pending:
        """Begin to send a tensor; send it, if the caller is blocking."""
        tensor = one("send", tensors)
        array, peer = read(tensor), self._global(dst)
        if _waits():
            self._at_once("send", partial(rankwise.send, array, peer), tensor, tag)
            return DONE
        return self._begin("send", partial(rankwise.isend, array, peer), tensor, tag, ())

    def recv(self, tensors: Sequence[torch.Tensor], src: int, tag: int = 0) -> Received | Pending:
        """Begin to receive a tensor from a rank; receive it, if the caller is blocking."""
        return self._receive(one("recv", tensors), self._global(src), tag)

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int = 0) -> Received | Pending:
        """Begin to receive a tensor from any rank that sends one; receive it, if the caller is blocking."""
        return self._receive(one("recv", tensors), None, tag)

    def _receive(self, tensor: torch.Tensor, peer: int | None, tag: int) -> Received | Pending:
        copies: list[Ending] = []
        array = filled(tensor, copies)
        if _waits():
            source = self._at_once("recv", partial(rankwise.recv, array, peer), tensor, tag)
            put_back(copies)
            return Received(tensor, self.under.rank_of[source])
        return self._begin("recv", partial(rankwise.irecv, array, peer), tensor, tag, copies)

    def _at_once(self, op: str, message: Callable[..., Any], tensor: torch.Tensor, tag: int) -> Any:
        with event(self.issuer.backend, op, (tensor,)) if is_profiling() else nullcontext(), as_torch_raises():
            return message(group=self.under, tag=tag)

    def _begin(
        self, op: str, message: Callable[..., Any], tensor: torch.Tensor, tag: int, copies: Sequence[Ending]
    ) -> Pending:
        inner: Inner = self._at_once(op, message, tensor, tag)
        return self.issuer.pending(inner, (tensor,), copies, self.under.rank_of)

    def _global(self, rank: int) -> int:
        ranks = self.under.ranks
        if not 0 <= rank < len(ranks):
            raise ValueError(f"group {self.under.group_desc!r} has ranks 0 to {len(ranks) - 1}, not {rank}")
        return ranks[rank]

    def _start_coalescing(self, device: torch.device) -> None:
        """Begin a block of calls that `_end_coalescing` waits for together."""
        self.issuer.begun[get_ident()] = []

    def _end_coalescing(self, device: torch.device) -> Done | Pending:
        """End this thread's block."""
        works = self.issuer.begun.pop(get_ident(), [])
        if not works:
            return Done()
        return Pending(Together(works), [tensor for work in works for tensor in work.filled])


def _waits() -> bool:
    """Tell whether torch's `send` or `recv` is what has called `isend` or `irecv`, which has called this module."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return frame is not None and frame.f_back is not None and frame.f_back.f_code in _BLOCKING
