"""`RankwiseGroup`: what `ray.util.collective` calls for a group of the backend "rankwise"."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar

import rankwise as dist
from rankwise.backends import Ending, seconds, start_thread
from rankwise_ray.arrays import to_array
from rankwise_ray.installed import BaseGroup
from rankwise_ray.meeting import Joining, Met, leave

#: The backend's name, as Ray writes it.
NAME = "RANKWISE"

_F = TypeVar("_F", bound=Callable[..., Any])

_OPS = {name: getattr(dist.ReduceOp, name) for name in ("SUM", "PRODUCT", "MIN", "MAX")}
_TIMEOUT, _DEFAULT_TIMEOUT_S = "RANKWISE_RAY_TIMEOUT_S", 1800.0

#: Where groups meet that are being made by `create_group`, by their names.
places: dict[str, tuple[str, float | None]] = {}


class ArgumentError(ValueError, RuntimeError):
    """A mistake in the arguments: Ray's callers expect a `RuntimeError`, rankwise's a `ValueError`."""


def _told(method: _F) -> _F:
    """Have mistakes in arguments raised as an error of both kinds."""

    @wraps(method)
    def call(self: RankwiseGroup, *args: Any) -> None:
        try:
            method(self, *args)
        except ValueError as error:
            raise ArgumentError(str(error)) from None

    return call  # type: ignore[return-value]


class RankwiseGroup(BaseGroup):  # type: ignore[misc]
    """One rank of a group.

    Ray holds one lock for all groups of a process while it makes one, so this returns immediately. A thread meets the
    others; the first operation waits for it.
    """

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        place, timeout_s = places.pop(group_name, ("", None))
        #: What `create_group` tells it from others of its name by.
        self.place = place
        self.timeout_s = default_timeout_s() if timeout_s is None else timeout_s
        self._meeting = Joining(group_name, rank, world_size, self._create, place)
        self._come = Ending()
        self._met: Met | None = None
        self._error: BaseException | None = None
        start_thread(threading.Thread(target=self._meet, name=f"rankwise-ray {group_name}", daemon=True))

    @classmethod
    def backend(cls) -> str:
        return NAME

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    # ------------------------------------------------------------------ beginning and end

    def wait(self, timeout_s: float | None = None) -> dist.ProcessGroup | None:
        """Return the group once all have come; None if that takes longer than `timeout_s`.

        Raises:
            RuntimeError: It cannot be made.
        """
        if not self._come.wait(timeout_s):
            return None
        if self._met is None:
            raise RuntimeError(f"collective group {self._group_name!r}: {self._error}") from self._error
        return self._met.group

    def destroy_group(self) -> None:
        """Leave the group; nobody waits for the others here, as drivers may destroy one rank after the other."""
        if not self._come.told:
            self._meeting.cancel()
        start_thread(threading.Thread(target=self._leave, name=f"rankwise-ray {self._group_name} end", daemon=True))

    def _meet(self) -> None:
        try:
            self._met = self._meeting.come(self.timeout_s)
        except BaseException as error:  # raised where an operation is called
            self._error = error
        self._come.tell()

    def _create(self, root: dist.ProcessGroup, mark: str, timeout_s: float) -> dist.ProcessGroup:
        group = dist.ProcessGroup.create(
            parent=root,
            rank=self._rank,
            size=self._world_size,
            name=mark,
            backend=str(dist.BackendConfig(os.environ.get("RANKWISE_RAY_BACKEND"))),
            timeout=timeout_s,
            description=self._group_name,
        )
        group.set_timeout(self.timeout_s)
        return group

    def _leave(self) -> None:
        self._come.wait()
        if self._met is not None:
            with suppress(dist.DistError):  # it had failed before, and the calls have raised that
                leave(self._met)

    @property
    def _group(self) -> dist.ProcessGroup:
        return self._met.group if self._met is not None else self.wait()  # type: ignore[return-value]

    # ------------------------------------------------------------------ operations; Ray puts each tensor into a list

    @_told
    def allreduce(self, tensor: Any, allreduce_options: Any = None) -> None:
        op = _op(allreduce_options)  # first: Ray has all threads share these options
        dist.all_reduce(to_array(_only(tensor), True), op, group=self._group)

    @_told
    def barrier(self, barrier_options: Any = None) -> None:
        dist.barrier(group=self._group)

    @_told
    def reduce(self, tensor: Any, reduce_options: Any = None) -> None:
        op, root = _op(reduce_options), reduce_options.root_rank if reduce_options else 0
        dist.reduce(to_array(_only(tensor), root == self._rank), group_dst=root, op=op, group=self._group)

    @_told
    def allgather(self, tensor_list: Any, tensor: Any, allgather_options: Any = None) -> None:
        outputs = [to_array(each, True) for each in _only(tensor_list)]
        dist.all_gather(outputs, to_array(_only(tensor)), group=self._group)

    @_told
    def broadcast(self, tensor: Any, broadcast_options: Any = None) -> None:
        root = broadcast_options.root_rank if broadcast_options else 0
        dist.broadcast(to_array(_only(tensor), root != self._rank), group_src=root, group=self._group)

    @_told
    def reducescatter(self, tensor: Any, tensor_list: Any, reducescatter_options: Any = None) -> None:
        op = _op(reducescatter_options)
        inputs = [to_array(each) for each in _only(tensor_list)]
        dist.reduce_scatter(to_array(_only(tensor), True), inputs, op, group=self._group)

    @_told
    def send(self, tensor: Any, send_options: Any) -> None:
        array = _part(to_array(_only(tensor)), send_options)
        dist.send(array, group_dst=send_options.dst_rank, group=self._group)

    @_told
    def recv(self, tensor: Any, recv_options: Any) -> None:
        array = _part(to_array(_only(tensor), True), recv_options)
        dist.recv(array, group_src=recv_options.src_rank, group=self._group)


def default_timeout_s() -> float:
    """Return how long making a group may take, and each of its operations, unless `create_group` was told otherwise."""
    text = os.environ.get(_TIMEOUT)
    try:
        return seconds(float(text)) if text else _DEFAULT_TIMEOUT_S
    except ValueError:
        raise ValueError(f"{_TIMEOUT} is {text!r}, but must be a number of seconds") from None


def _op(options: Any) -> dist.ReduceOp:
    return _OPS[options.reduceOp.name] if options else dist.ReduceOp.SUM


def _only(tensors: Any) -> Any:
    if len(tensors) != 1:
        raise ValueError(f"rankwise moves one tensor a process, not {len(tensors)}; those of other devices are NCCL's")
    return tensors[0]


def _part(array: Any, options: Any) -> Any:
    """Return the first elements, if just some are asked for, as the calls for several devices do."""
    count = getattr(options, "n_elements", 0)
    return array.reshape(-1)[:count] if count else array
