"""Errors that are both of torch's kind and of rankwise's: `except` of either catches them.

A `rankwise.PeerDiedError` becomes an error that is also a `torch.distributed.DistBackendError`, with the same message
and attributes, such as the rank that died.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as c10d

import rankwise

#: Which error of torch an error of rankwise is too; the first line that fits counts.
_KINDS: tuple[tuple[type[rankwise.DistError], type[Exception]], ...] = (
    (rankwise.DistNetworkError, c10d.DistNetworkError),
    (rankwise.DistStoreError, c10d.DistStoreError),
    (rankwise.RendezvousError, c10d.DistError),
    (rankwise.DistError, c10d.DistBackendError),
)

_made: dict[type[rankwise.DistError], type[BaseException]] = {}


@contextmanager
def as_torch_raises() -> Iterator[None]:
    """Let the errors of rankwise that a block raises be torch's too."""
    try:
        yield
    except rankwise.DistError as error:
        raise of_both(error) from error.__cause__


def of_both(error: BaseException) -> BaseException:
    """Return an error like `error` that torch's programs know to catch; any but rankwise's as it is."""
    if not isinstance(error, rankwise.DistError) or isinstance(error, c10d.DistError):
        return error
    kind = _both(type(error))
    both = kind.__new__(kind)
    both.args = error.args
    both.__dict__.update(error.__dict__)
    return both.with_traceback(error.__traceback__)


def _both(ours: type[rankwise.DistError]) -> type[BaseException]:
    """Return the class of errors that are of the kind `ours` and of its counterpart in torch."""
    made = _made.get(ours)
    if made is None:
        theirs = next(theirs for kind, theirs in _KINDS if issubclass(ours, kind))
        body = {"__module__": __name__, "__doc__": ours.__doc__, "__reduce__": _reduce}
        made = _made[ours] = type(ours.__name__, (ours, theirs), body)
    return made


def _reduce(both: rankwise.DistError) -> tuple[Any, ...]:
    """Have pickles and copies hold the error of rankwise, as no module has the class of both under its name."""
    make, (kind, *state) = rankwise.DistError.__reduce__(both)
    return _made_again, (make, (kind.__bases__[0], *state))


def _made_again(make: Callable[..., BaseException], state: tuple[Any, ...]) -> BaseException:
    return of_both(make(*state))
