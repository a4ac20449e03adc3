"""Calls that are prepared once and made many times: what all ranks must say alike is compared when they are prepared.

A plan holds its arrays, and each run is the plain call, bound to these: it does what the public call does, and leaves
whatever is not plain to it. So a run has the call's own errors too, such as where another rank runs another plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import BoundArguments, signature
from typing import Any

import rankwise as dist
from rankwise.binding import TAKEN, ProcessGroup, Root, failed, group_rank, resolve
from rankwise_arrays.kinds import Group, is_member
from rankwise_arrays.together import compare, together

#: The collectives, and which of their arguments all ranks give alike; of an array it is dtype and shape.
_COLLECTIVES = {
    "all_gather": ("tensor",),
    "all_gather_single": ("input_tensor",),
    "all_reduce": ("tensor", "op"),
    "all_to_all": (),
    "all_to_all_single": (),
    "barrier": (),
    "broadcast": ("tensor", "src", "group_src"),
    "gather": ("dst", "group_dst"),
    "reduce": ("tensor", "op", "dst", "group_dst"),
    "reduce_scatter": ("op",),
    "reduce_scatter_single": ("input", "op"),
    "scatter": ("src", "group_src"),
}
#: The messages, and what begins one.
_MESSAGES = {"recv": "irecv", "send": "isend"}


def prepare(call: str, *args: Any, group: Group = None, **options: Any) -> Plan:
    """Prepare a call, to be made any number of times with the same arrays; all ranks of its group prepare it.

    Args:
        call: The name of a collective, or `send` or `recv`, which the two ranks prepare by themselves.
        *args: Its arguments, in its order.
        group: The group; None is the default group.
        **options: Arguments by name.

    Returns:
        The plan: `plan()` makes the call, `plan.start()` and `plan.wait()` the same in two steps.

    Raises:
        ValueError: There is no such call, this rank is not in the group, or `async_op` is given.
        TypeError: The arguments are not those of the call.
        CollectiveMismatchError: The ranks prepare different calls; the same on all ranks.

    Examples:
        >>> array = np.ones(2)
        >>> with dist.prepare("all_reduce", array, dist.ReduceOp.SUM) as plan:
        ...     for _ in range(3):
        ...         plan()
        >>> array
        array([8., 8.])
    """
    if call not in _COLLECTIVES and call not in _MESSAGES:
        raise ValueError(f"prepare: no call {call!r}; there are {', '.join(sorted([*_COLLECTIVES, *_MESSAGES]))}")
    if "async_op" in options:
        raise ValueError("prepare: async_op is not for a plan; start() begins the call, and wait() waits for it")
    if not is_member(group):
        raise ValueError("prepare: this rank is not in the group")
    bound = signature(getattr(dist, call)).bind(*args, group=group, **options)
    bound.apply_defaults()
    if call in _COLLECTIVES:
        words = [call, *(f"{name}={_described(bound.arguments[name])}" for name in _COLLECTIVES[call])]
        compare("prepare", "prepare the same call", together("prepare", lambda: " ".join(words), group), group)
    return Plan(call, bound)


class Plan:
    """A call that has been prepared; see `prepare`.

    `plan()` makes the call, and returns what it returns. It raises the call's errors: a `CollectiveMismatchError` where
    the ranks run different plans, and a `ValueError` once the plan has been closed.

    Attributes:
        call: Its name.
    """

    #: Python looks it up in the class and finds the place of this plan's own, so that a run has no function of ours.
    __call__: Callable[[], Any]
    __slots__ = ("__call__", "__weakref__", "_begin", "_work", "call")

    def __init__(self, call: str, bound: BoundArguments) -> None:
        self.call = call
        given = bound.arguments
        self.__call__ = bound_call(call, given, _plain(getattr(dist, call), bound))
        if call in _MESSAGES:
            begun = {name: value for name, value in given.items() if name != "timeout"}
            self._begin = partial(getattr(dist, _MESSAGES[call]), **begun)
        else:
            self._begin = partial(getattr(dist, call), **{**given, "async_op": True})
        self._work: Any = None

    def __repr__(self) -> str:
        return f"<Plan of {self.call}>"

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for a run that was started, and close the plan."""
        if kind is None and self._work is not None:
            self.wait()
        self.close()

    def start(self) -> None:
        """Begin the call.

        Raises:
            ValueError: A run has not been waited for, or the plan has been closed.
        """
        if self._work is not None:
            raise ValueError(f"start: the last run of this plan of {self.call} has not been waited for")
        self._work = self._begin()

    def wait(self, timeout: Any = None) -> None:
        """Wait for the run that was started.

        Args:
            timeout: How long, in seconds or as a `timedelta`; None is the group's time-out.

        Raises:
            ValueError: None was started.
            DistTimeoutError: It has taken too long, and can be waited for again.
        """
        if self._work is None:
            raise ValueError(f"wait: no run of this plan of {self.call} was started")
        self._work.wait(timeout)
        self._work = None

    def close(self) -> None:
        """Let go of the arrays."""
        self.__call__ = self._begin = partial(_closed, self.call)


def bound_call(call: str, given: Mapping[str, Any], plain: Callable[[], Any]) -> Callable[[], Any]:
    """Return what makes a public call by the shortest way that the backend of its group has, as often as it is called.

    The backend takes the arguments apart once: see `bind` of `rankwise.backends.Shortcuts`.

    Args:
        call: The name of the public function.
        given: All its arguments, by name.
        plain: Makes the call by that function.
    """
    group = resolve(given["group"], call)
    if group is None or call in _MESSAGES or given.get("output_split_sizes") or given.get("input_split_sizes"):
        return plain
    args = tuple(_handed(group, name, given) for name in TAKEN[call] if name != "timeout")
    return group.shortcuts.bind(call, args, given["timeout"], plain, partial(failed, group, call=call))


def _handed(group: ProcessGroup, name: str, given: Mapping[str, Any]) -> Any:
    return group_rank(group, name, given[name], given[f"group_{name}"]) if isinstance(name, Root) else given[name]


def _plain(call: Callable[..., Any], bound: BoundArguments) -> Callable[[], Any]:
    """Return what makes a call, with as few arguments as say the same: by position, as each name costs 0.1 us a run."""
    defaults = {name: each.default for name, each in bound.signature.parameters.items()}
    named = {name: value for name, value in bound.kwargs.items() if value is not defaults[name]}
    args, by_place = list(bound.args), [*defaults.values()]
    while args and args[-1] is by_place[len(args) - 1]:
        args.pop()
    return partial(call, *args, **named)


def _closed(call: str) -> Any:
    raise ValueError(f"this plan of {call} has been closed")


def _described(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else str(value)
