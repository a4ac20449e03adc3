"""Events of torch's profiler, such as `rankwise:all_reduce`.

An event lasts as long as the call: for a synchronous one until its operation has ended, for an asynchronous one until
it has been issued, and the wait for it is an event of its own. Torch's own backends end their events from C++ when the
operation does; an event that was begun in Python can only be ended on the thread that began it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._C._autograd import _profiler_enabled as is_profiling
from torch._C._profiler import _RecordFunctionFast

__all__ = ["event", "is_profiling"]


def event(backend: str, op: str, tensors: Sequence[torch.Tensor] = ()) -> _RecordFunctionFast:
    """Return a context that records an event with the shapes of tensors."""
    return _RecordFunctionFast(f"{backend}:{op}", list(tensors))
