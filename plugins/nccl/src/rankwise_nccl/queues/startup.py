"""How the members of a queue start NCCL: they find each other in the store, and one of them gives the unique id.

All wait for all before NCCL is called, since NCCL itself waits without an end and without a word about who is missing.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from typing import Any, TypedDict

from rankwise.backends import Context, Deadline, PrefixStore, Store
from rankwise.errors import DistBackendError, DistError, DistStoreError, DistTimeoutError, GroupAbortedError
from rankwise_nccl.library.api import Api
from rankwise_nccl.queues.settling import settled

#: How soon a thread that waits for the members notices that the group has been given up.
_SLICE_S = 0.25


class Note(TypedDict):
    """What a member says about itself."""

    host: str
    gpu: str


class Start:
    """The start of one NCCL communicator.

    Args:
        api: CuPy.
        context: The group.
        members: Group ranks of the members; the first gives the unique id.
        key: What the members call this queue in the store.
        device: Index of this rank's device.
    """

    def __init__(self, api: Api, context: Context, members: tuple[int, ...], key: str, device: int) -> None:
        self._api, self._context, self._members, self._device = api, context, members, device
        self._store: Store | None = None
        if context.store is not None and len(members) > 1:
            self._store = PrefixStore(f"queue/{key}", context.store)

    def __call__(self, given_up: Callable[[], bool]) -> Any:
        """Make the communicator, on a thread whose current device is the queue's, unless `given_up()` meanwhile."""
        if len(self._members) == 1:
            return self._made(self._api.nccl.get_unique_id(), given_up)
        notes, unique_id = self._meet(Deadline(self._context.timeout_s), given_up)
        try:
            return self._made(unique_id, given_up)
        except self._api.nccl.NcclError as error:
            shared = _shared_devices(notes)
            if not shared:
                raise
            raise DistBackendError(f"NCCL refuses: {shared}; each rank needs a GPU of its own ({error})") from error

    def absent(self) -> list[int]:
        """Return the global ranks of the members that have not come."""
        if self._store is None:
            return []
        try:
            names = [self._context.global_ranks[rank] for rank in self._members]
            return [name for name in names if not self._store.check([f"here/{name}"])]
        except DistError:
            return []

    def _made(self, unique_id: bytes, given_up: Callable[[], bool]) -> Any:
        """Have NCCL make the communicator."""
        place = self._members.index(self._context.rank)
        comm = self._api.nccl.NcclCommunicator(len(self._members), unique_id, place)
        if not settled(comm.check_async_error, given_up):
            comm.abort()
            raise self._given_up()
        return comm

    def _given_up(self) -> GroupAbortedError:
        me = self._context.global_ranks[self._context.rank]
        return GroupAbortedError(f"starting NCCL for group {self._context.name!r} on rank {me} was given up")

    def _tell(self) -> None:
        """Tell the members that this rank has come, and with which device."""
        if self._store is not None:
            # NCCL tells hosts apart by NCCL_HOSTID where that is set.
            host = os.environ.get("NCCL_HOSTID") or socket.gethostname()
            gpu = self._api.cuda.runtime.deviceGetPCIBusId(self._device)
            me = self._context.global_ranks[self._context.rank]
            self._store.set(f"here/{me}", json.dumps({"host": host, "gpu": gpu}))

    def _meet(self, deadline: Deadline, given_up: Callable[[], bool]) -> tuple[dict[int, Note], bytes]:
        """Return what the members say about themselves, by global rank, and the unique id."""
        if self._store is None:
            raise DistStoreError("NCCL needs a store to start from; give one to init_process_group")
        names = [self._context.global_ranks[rank] for rank in self._members]
        me = self._context.global_ranks[self._context.rank]
        try:
            if me == names[0]:
                self._store.set("id", self._api.nccl.get_unique_id())
            self._tell()
            keys = [f"here/{name}" for name in names]
            while not given_up() and not deadline.expired() and not self._come(self._store, keys, deadline):
                pass
            if given_up():
                raise self._given_up()
            said = self._store.multi_get(keys, timeout=deadline.remaining())
            notes: dict[int, Note] = {name: json.loads(text) for name, text in zip(names, said, strict=True)}
            unique_id = self._store.get("id", timeout=deadline.remaining())
        except DistTimeoutError as error:
            absent = ", ".join(map(str, self.absent()))
            raise DistTimeoutError(
                f"starting NCCL for group {self._context.name!r} on rank {me}: ranks {absent or names} have not come "
                f"within {deadline.timeout_s:g} s"
            ) from error
        except DistStoreError as error:
            raise DistStoreError(
                f"starting NCCL for group {self._context.name!r} on rank {me}: {error}; if the rank that hosts the "
                "store has left already, give device_id to init_process_group, which starts NCCL at once"
            ) from error
        return notes, unique_id

    @staticmethod
    def _come(store: Store, keys: list[str], deadline: Deadline) -> bool:
        """Wait a little for the members; tell whether all have come."""
        try:
            store.wait(keys, timeout=min(_SLICE_S, deadline.remaining()))
        except DistTimeoutError:
            return False
        return True


def _shared_devices(notes: dict[int, Note]) -> str:
    """Name the ranks that use one GPU, if there are any."""
    users: dict[tuple[str, str], list[int]] = {}
    for rank, note in notes.items():
        users.setdefault((note["host"], note["gpu"]), []).append(rank)
    told = [
        f"ranks {', '.join(map(str, ranks))} are all on GPU {gpu} of host {host}"
        for (host, gpu), ranks in users.items()
        if len(ranks) > 1
    ]
    return "; ".join(told)
