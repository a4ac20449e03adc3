"""Calls made of the core's own: the face of the core for `rankwise-arrays`.

A call that is made again and again with the same arguments is *bound* to them. It does what the public call does, and
leaves to it whatever is not plain. The backend makes it, and takes the arguments apart once: see `bind` of
`rankwise.backends.fast_calls.Shortcuts`. Calls over several arrays check, issue and wait by the other names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rankwise.basics.arguments import require
from rankwise.basics.arrays import AnyArray
from rankwise.basics.devices import empty_like, on_device_of, placed
from rankwise.calls import check
from rankwise.calls.calling import CombinedWork, failed, finish, terms
from rankwise.collective.call import Call
from rankwise.groups.process_group import GroupLike, ProcessGroup
from rankwise.groups.ranks import group_rank
from rankwise.groups.world import resolve

__all__ = [
    "AnyArray",
    "Call",
    "CombinedWork",
    "GroupLike",
    "ProcessGroup",
    "bound",
    "check",
    "empty_like",
    "failed",
    "finish",
    "group_rank",
    "on_device_of",
    "placed",
    "require",
    "resolve",
    "terms",
]

#: What shortcuts take of the arguments of the collectives that have one, by the names that these have there; `src` and
#: `dst` are handed over as group ranks.
_TAKEN: dict[str, tuple[str, ...]] = {
    "all_gather": ("tensor_list", "tensor"),
    "all_gather_single": ("output_tensor", "input_tensor"),
    "all_reduce": ("tensor", "op"),
    "all_to_all": ("output_tensor_list", "input_tensor_list"),
    "all_to_all_single": ("output", "input"),
    "barrier": (),
    "broadcast": ("tensor", "src"),
    "gather": ("tensor", "gather_list", "dst"),
    "reduce": ("tensor", "op", "dst"),
    "reduce_scatter": ("output", "input_list", "op"),
    "reduce_scatter_single": ("output", "input", "op"),
    "scatter": ("tensor", "scatter_list", "src"),
}


def bound(call: str, given: Mapping[str, Any], plain: Callable[[], Any]) -> Callable[[], Any]:
    """Return what makes a public call by the shortest way that the backend of its group has, as often as it is called.

    Args:
        call: The name of the public function.
        given: All its arguments, by name.
        plain: Makes the call by that function.
    """
    group = resolve(given["group"], call)
    if group is None or call not in _TAKEN or given.get("output_split_sizes") or given.get("input_split_sizes"):
        return plain
    args = tuple(_handed(group, name, given) for name in _TAKEN[call])
    return group.shortcuts.bind(call, args, given["timeout"], plain, partial(failed, group, call=call))


def _handed(group: ProcessGroup, name: str, given: Mapping[str, Any]) -> Any:
    return group_rank(group, name, given[name], given[f"group_{name}"]) if name in ("src", "dst") else given[name]
