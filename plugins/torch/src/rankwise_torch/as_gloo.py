"""Replace torch's gloo for programs that name it, and for what of torch looks at that name.

From 2.14 on gloo is a backend among others, and registering another one by its name suffices. In 2.13 torch makes an
object of its class `ProcessGroupGloo`, and asks whether objects are of it; so this puts another class in its place, in
the module that does that and nowhere else.
"""

from __future__ import annotations

import functools
import logging
from datetime import timedelta
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d
from torch.distributed import ProcessGroup, Store

from rankwise_torch.loading import without_collecting

_log = logging.getLogger("rankwise_torch")


def install(as_gloo: bool = False) -> None:
    """Register the names of rankwise's backends with torch, as the import of this package does.

    rankwise's own calls, such as `rankwise.all_reduce`, take tensors of every dtype from then on.

    Args:
        as_gloo: Let "gloo" mean rankwise from now on, in this process. All processes of a job must agree.
    """
    import rankwise
    from rankwise_torch.names import creator, register
    from rankwise_torch.tensors import shared, written

    register()
    for kind in (torch.Tensor, torch.nn.Parameter):
        rankwise.register_array_type(kind, shared, written)
    if not as_gloo or _is_installed():
        return
    if hasattr(c10d.Backend, "_ensure_backend_registered"):
        c10d.Backend.register_backend("gloo", creator("gloo"), extended_api=True, devices=["cpu"])
    else:
        _replace_class()
    _log.info("rankwise takes the place of torch's gloo in this process")


def _is_installed() -> bool:
    plugin = c10d.Backend._plugins.get("GLOO")
    is_ours = plugin is not None and plugin.creator_fn.__module__.startswith("rankwise_torch")
    return is_ours or isinstance(c10d.ProcessGroupGloo, _Taken)


class _Taken(type):
    """The class of what stands for torch's `ProcessGroupGloo`, which it still is but for what is made of it."""

    theirs: Any

    def __call__(cls, store: Store, rank: int, size: int, timeout: timedelta) -> ProcessGroup:
        with without_collecting():
            from rankwise_torch.creation import make
            from rankwise_torch.request import asked

            return make(asked(store, rank, size, "gloo", timeout))

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.theirs) or getattr(instance, "backend", None) == "gloo"

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.theirs, name)


def _replace_class() -> None:
    theirs, make_wrapper = c10d.ProcessGroupGloo, c10d._create_process_group_wrapper
    ours = _Taken("ProcessGroupGloo", (), {"theirs": theirs, "__module__": theirs.__module__})

    @functools.wraps(make_wrapper)
    def with_theirs(*args: Any, **more: Any) -> Any:
        """Make a checking wrapper around a backend of C++, which needs a gloo of C++ too."""
        c10d.ProcessGroupGloo = theirs
        try:
            return make_wrapper(*args, **more)
        finally:
            c10d.ProcessGroupGloo = ours

    c10d.ProcessGroupGloo, c10d._create_process_group_wrapper = ours, with_theirs
