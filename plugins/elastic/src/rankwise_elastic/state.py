"""`State`: what all ranks of a job have alike, kept so that no committed step is lost when ranks come and go.

A commit counts once all ranks have made their copy of it. So a rank is at most one commit ahead of what any other has
seen to be complete, and each keeps its last two copies: after a death all go on from the newest commit that every
survivor has, and that is never older than the newest one that has completed anywhere.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import rankwise as dist
from rankwise.errors import DistBackendError
from rankwise_elastic.membership import is_awaited, job_of
from rankwise_elastic.notices import leaving

#: How many bytes a newcomer gets at a time from one of those that have them.
_PIECE_NBYTES = 4 << 20


class MembershipChange(Exception):
    """Raised by `State.commit`, on all ranks alike, when somebody wants to join or leave: the commit has been made.

    `elastic.run` catches it, regroups and goes on.
    """


class _Kept(NamedTuple):
    """A commit: its number, and copies of all values."""

    number: int
    values: dict[str, Any]


class _Standing(NamedTuple):
    """What a rank has when it synchronises: in which epoch it last was in step, and its newest commit."""

    epoch: int
    newest: int


class State:
    """Values that are the same on all ranks after each step of a program: arrays, and objects that need no pickle.

    Values are attributes. Arrays of NumPy are restored and received in place, so that others may hold them.

    Args:
        **values: Their names and first values. Those of rank 0 count where no rank has committed anything.

    Examples:
        >>> state = dist.elastic.State(weights=np.zeros(1000), step=0)
        >>> state.step += 1
        >>> state.step
        1
    """

    def __init__(self, **values: Any) -> None:
        vars(self).update(_values={}, _kept=[], _epoch=0, _number=0)
        for name, value in values.items():
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        try:
            return vars(self)["_values"][name]
        except KeyError:
            raise AttributeError(f"State has no value {name!r}; it has {', '.join(self)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or hasattr(type(self), name):
            raise AttributeError(f"State cannot have a value {name!r}, which is a name of its own")
        self._values[name] = value

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self)["_values"])

    def __repr__(self) -> str:
        return f"State({', '.join(self)}; {self.commits} commits)"

    @property
    def commits(self) -> int:
        """How many commits there have been, on whatever ranks."""
        return int(vars(self)["_number"])

    def commit(self) -> None:
        """Keep the values as they are now: after a failure all ranks go on from here. All ranks call this.

        Raises:
            MembershipChange: The commit has been made, and somebody wants to join, or leaves after a notice.
            DistError: A rank has failed meanwhile; the commit counts if any rank has completed it.
        """
        kept = _Kept(self.commits + 1, _copied(self._values))
        vars(self)["_kept"] = [*self._kept[-1:], kept]
        changes = np.array([is_awaited(), leaving()], np.uint8)
        dist.all_reduce(changes, dist.ReduceOp.MAX)
        vars(self)["_number"] = kept.number
        if changes.any():
            raise MembershipChange("somebody wants to join the job" if changes[0] else "a rank leaves the job")

    def restore(self) -> None:
        """Go back to this rank's last commit; without one the values stay as they are."""
        for kept in self._kept:
            if kept.number == self.commits:
                self._load(kept)

    def sync(self) -> None:
        """Have all ranks of a new epoch go on from the same commit. All ranks call this.

        Those that were in step go back to the newest commit that all of them have; the others receive it from several
        of them at the same time, and all compare what they have then.

        Raises:
            DistError: A rank has failed meanwhile; after the next `regroup` it may be tried again.
        """
        job = job_of()
        epoch = job.last.epoch
        job.has_state, job.stood = True, self._epoch
        standings: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(standings, tuple(self._standing()))
        in_step, number = _agreed([_Standing(*each) for each in standings])
        if not in_step:  # nobody has committed anything: all begin as rank 0 does
            in_step = [0]
        is_in_step = dist.get_rank() in in_step
        for kept in self._kept if is_in_step else ():
            if kept.number == number:
                self._load(kept)
        if len(in_step) < len(standings):
            self._pass_on(in_step, is_in_step)
        self._compare()
        vars(self).update(_kept=[_Kept(number, _copied(self._values))], _number=number, _epoch=epoch)
        job.stood = epoch

    # ------------------------------------------------------------------ parts of it

    def _standing(self) -> _Standing:
        return _Standing(self._epoch, self._kept[-1].number if self._kept else -1)

    def _load(self, kept: _Kept) -> None:
        for name, value in kept.values.items():
            self._put(name, value)
        for name in [name for name in self._values if name not in kept.values]:
            del self._values[name]
        vars(self)["_number"] = kept.number

    def _put(self, name: str, value: Any) -> None:
        """Give a value back, an array in place where it fits."""
        there = self._values.get(name)
        if _is_array(value) and _is_array(there) and (there.shape, there.dtype) == (value.shape, value.dtype):
            there[...] = value
        else:
            self._values[name] = copy.deepcopy(value)

    def _pass_on(self, in_step: list[int], is_in_step: bool) -> None:
        """Give the values to those that were not in step; each gets the pieces from all that were, in turn."""
        described: list[Any] = [_described(self._values) if is_in_step else None]
        dist.broadcast_object_list(described, in_step[0])
        arrays, others = described[0]
        if not is_in_step:
            self._prepare(arrays, others)
        behind = [rank for rank in range(dist.get_world_size()) if rank not in in_step]
        rank, works = dist.get_rank(), []
        for index, (name, start, stop) in enumerate(_pieces(self._values, arrays)):
            piece = _bytes_of(self._values[name])[start:stop]
            for receiver in behind:
                sender = in_step[(index + receiver) % len(in_step)]
                if rank == sender:
                    works.append(dist.isend(piece, receiver))
                elif rank == receiver:
                    works.append(dist.irecv(piece, sender))
        for work in works:
            work.wait()

    def _prepare(self, arrays: dict[str, Any], others: dict[str, Any]) -> None:
        for name, (shape, dtype) in arrays.items():
            there = self._values.get(name)
            fits = _is_array(there) and (there.shape, there.dtype) == (tuple(shape), np.dtype(dtype))
            if not (fits and there.flags.c_contiguous and there.flags.writeable):
                self._values[name] = np.empty(shape, dtype)
        for name in [name for name in self._values if name not in arrays]:
            del self._values[name]
        self._values.update(others)

    def _compare(self) -> None:
        """Raise on all ranks alike if not all have the same arrays."""
        digests: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(digests, _digest(self._values))
        if len(set(digests)) > 1:
            odd = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
            raise DistBackendError(f"State.sync: ranks {odd} have other arrays than rank 0 after all have synchronised")


def _agreed(standings: list[_Standing]) -> tuple[list[int], int]:
    """Return which ranks were in step, and the number of the newest commit that all of these have."""
    epoch = max((each.epoch for each in standings if each.newest >= 0), default=0)
    in_step = [rank for rank, each in enumerate(standings) if each.newest >= 0 and each.epoch == epoch]
    return in_step, min((standings[rank].newest for rank in in_step), default=0)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and not value.dtype.hasobject


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    return {name: copy.deepcopy(value) for name, value in values.items()}


def _described(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return of arrays their shapes and dtypes, and everything else itself."""
    arrays = {name: (value.shape, value.dtype.str) for name, value in values.items() if _is_array(value)}
    return arrays, {name: value for name, value in values.items() if name not in arrays}


def _pieces(values: dict[str, Any], arrays: dict[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Return the arrays' pieces: a name, and from which byte to which."""
    for name in arrays:
        for start in range(0, values[name].nbytes, _PIECE_NBYTES):
            yield name, start, min(start + _PIECE_NBYTES, values[name].nbytes)


def _bytes_of(array: Any) -> Any:
    """Return an array's bytes: itself, if it is contiguous, and a copy to be sent if not."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _digest(values: dict[str, Any]) -> str:
    """Return what tells these arrays from others."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(name for name in values if _is_array(values[name])):
        array = values[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(_bytes_of(array))
    return digest.hexdigest()
