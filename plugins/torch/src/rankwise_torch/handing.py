"""Works that C++ keeps longer than Python does, as `DistributedDataParallel.join` has it keep one.

With the last reference from Python goes all that our classes have added to torch's, so that C++ would wait for a work
of which nobody tells it the end. It is handed one of its own instead, which ends with the work's future.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from rankwise_torch.works import Done, Pending, of_its_own

#: Functions of torch's, bound in C++, that keep a work; by whose attribute they are found.
_KEEPERS = (
    (torch._C._distributed_c10d.Reducer, "_set_forward_pass_work_handle"),
    (torch._C._distributed_c10d, "_register_work"),
)


def hand_on_works() -> None:
    """Have what keeps works in C++ keep ones that it can wait for."""
    for place, name in _KEEPERS:
        keep = getattr(place, name, None)
        if keep is not None and not hasattr(keep, "__wrapped__"):
            setattr(place, name, _handing_on(keep))


def _handing_on(keep: Any) -> Any:
    @functools.wraps(keep)
    def handing_on(*args: Any) -> Any:
        return keep(*(of_its_own(value) if isinstance(value, Done | Pending) else value for value in args))

    return handing_on
