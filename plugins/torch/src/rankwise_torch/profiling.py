"""Events of torch's profiler, such as `rankwise:all_reduce`, each from the call to the operation's end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C._autograd import _profiler_enabled as is_profiling

from rankwise_torch.works import Pending

__all__ = ["is_profiling", "profiled"]


def profiled(title: str, call: Callable[[], Any]) -> Any:
    """Return what `call` returns, a work, and record an event that lasts until that work has ended."""
    record = torch.autograd.profiler.record_function(title)
    record.__enter__()
    work = None
    try:
        work = call()
    finally:
        if not isinstance(work, Pending):
            record.__exit__(None, None, None)
    if isinstance(work, Pending):
        work.lasts(record._call_end_callbacks_on_future)
    return work
