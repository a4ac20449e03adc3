"""`run`: a function that goes on when ranks come and go."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from rankwise.errors import (
    DistError,
    DistNetworkError,
    DistTimeoutError,
    GroupAbortedError,
    PeerDiedError,
    ProtocolError,
)
from rankwise_elastic.membership import Epoch, finish, leave, regroup
from rankwise_elastic.notices import Left, leaving
from rankwise_elastic.state import MembershipChange, State

_R = TypeVar("_R")
_P = ParamSpec("_P")
#: What tells of another rank's end; every other error is the program's own, and not tried again.
_OF_OTHERS = (PeerDiedError, GroupAbortedError, DistNetworkError, DistTimeoutError)


@overload
def run(
    function: Callable[Concatenate[State, _P], _R],
    *,
    min_size: int = 1,
    max_size: int | None = None,
    wait_s: float = 30.0,
    on_epoch: Callable[[Epoch], object] | None = None,
) -> Callable[Concatenate[State, _P], _R]: ...
@overload
def run(
    function: None = None,
    *,
    min_size: int = 1,
    max_size: int | None = None,
    wait_s: float = 30.0,
    on_epoch: Callable[[Epoch], object] | None = None,
) -> Callable[[Callable[Concatenate[State, _P], _R]], Callable[Concatenate[State, _P], _R]]: ...
def run(
    function: Callable[..., Any] | None = None,
    *,
    min_size: int = 1,
    max_size: int | None = None,
    wait_s: float = 30.0,
    on_epoch: Callable[[Epoch], object] | None = None,
) -> Any:
    """Have a function of a `State` carried out by whatever ranks there are.

    All ranks call it, newcomers too. Each time the ranks change, all regroup, go on from the same commit, and call the
    function again; so it begins where its state says. After a failure that is the last commit. When somebody joins, or
    leaves after a notice, nothing is lost, as that happens at a commit.

    Args:
        function: A function whose first argument is a `State`.
        min_size: As for `regroup`.
        max_size: As for `regroup`.
        wait_s: As for `regroup`.
        on_epoch: Called with each epoch, after the state is the same on all ranks.

    Returns:
        The function that does this; the decorator, if no function is given.

    Raises:
        Left: This rank has left after a notice; see `expect_notice`.
        DistTimeoutError: No `min_size` ranks came together in the group's time-out.
        Exception: What the function raises itself; that is the program's own, and is not tried again.

    Examples:
        >>> @dist.elastic.run(min_size=1)
        ... def train(state):
        ...     while state.step < 10:
        ...         state.step += 1
        ...         state.commit()
        ...     return state.step
        >>> dist.init_process_group("gloo", enable_reconfigure=True)
        >>> train(dist.elastic.State(step=0))
        10
        >>> dist.destroy_process_group()
    """
    if function is None:
        return functools.partial(run, min_size=min_size, max_size=max_size, wait_s=wait_s, on_epoch=on_epoch)

    @functools.wraps(function)
    def elastic(state: State, *args: Any, **kwargs: Any) -> Any:
        while True:
            epoch = regroup(min_size, max_size, wait_s)
            try:
                state.sync()
                if on_epoch is not None:
                    on_epoch(epoch)
                result = function(state, *args, **kwargs)
                finish()
                return result
            except MembershipChange:
                if leaving():
                    leave()
                    raise Left from None
            except DistError as error:
                if not is_of_others(error):
                    raise

    return elastic


def is_of_others(error: DistError) -> bool:
    """Tell whether an error comes of another rank's end, so that the ranks that are left may go on without it."""
    return isinstance(error, _OF_OTHERS) and not isinstance(error, ProtocolError)
