"""The arguments of torch's calls, in the forms that its own groups take: `allreduce([x], opts)`, or `allreduce(x)`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

import torch

_Options = TypeVar("_Options")
#: What torch takes where one tensor is meant, and where a list of them is.
Tensors: TypeAlias = "torch.Tensor | Sequence[torch.Tensor]"
Rows: TypeAlias = "Sequence[torch.Tensor] | Sequence[Sequence[torch.Tensor]]"


def options(kind: type[_Options], **fields: Any) -> _Options:
    """Return options of torch's class `kind` with the fields that are not None."""
    made = kind()
    for name, value in fields.items():
        if value is not None:
            setattr(made, name, value)
    return made


def rooted(kind: type[_Options], opts: Any, root: int | None, **fields: Any) -> _Options:
    """Return options of a call that has a root, which may have been given in the place of options."""
    return options(kind, rootRank=root if opts is None else opts, **fields)


def one(op: str, tensors: Tensors) -> torch.Tensor:
    """Return the one tensor of a call that takes a list because processes may have several GPUs."""
    if type(tensors) is list and len(tensors) == 1:  # almost always
        return tensors[0]
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"{op}: pass one tensor, not {len(tensors)}; several tensors are for {op}_coalesced")
    return tensors[0]


def row(op: str, lists: Rows) -> Sequence[torch.Tensor]:
    """Return the list of a call that takes a list of lists, for the same reason; an empty one where none is needed."""
    if not lists or isinstance(lists[0], torch.Tensor):
        return lists
    if len(lists) != 1:
        raise ValueError(f"{op}: pass one list of tensors, not {len(lists)}")
    return lists[0]


def timeout_of(opts: Any) -> dict[str, timedelta]:
    """Return the time-out of a call as an argument for rankwise; none if the group's applies."""
    timeout = opts.timeout
    return {} if timeout.days < 0 else {"timeout": timeout}  # torch says by -1 ms that there is none
