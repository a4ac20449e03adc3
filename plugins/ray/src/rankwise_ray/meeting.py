"""How the ranks of a group find each other: rank 0's address, and the job's secret, in Ray's own key-value store.

If rank 0 is in a company of as many processes, the ranks find out first whether all of them are, and make the group
there.

A key is there only while its group is being made. What a killed process has left leads nowhere: nobody listens there,
and a rank that finds such an address looks for another.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

import ray

import rankwise as dist
from rankwise_ray import company as companies
from rankwise_ray.company import Company
from rankwise_ray.installed import internal_kv as kv

_SPACE = b"rankwise"
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.05

#: Which meetings this process has come to last: it may be back before rank 0 has taken the key of one away.
_joined: deque[str] = deque(maxlen=1000)


class Met(NamedTuple):
    """A group, and the company that it was made in."""

    group: dist.ProcessGroup
    company: Company


def job_secret() -> dist.secret.Secret:
    """Return the secret of this Ray job; the first to come makes it. Who can read it can run code in the cluster."""
    key = b"secret:" + ray.get_runtime_context().get_job_id().encode()
    found = kv._internal_kv_get(key, namespace=_SPACE)
    if found is None:
        kv._internal_kv_put(key, bytes(dist.secret.new()), overwrite=False, namespace=_SPACE)
        found = kv._internal_kv_get(key, namespace=_SPACE)
    return dist.secret.Secret(found)


class Joining:
    """One rank's way into a group.

    Args:
        name: The group's name, for messages.
        rank: This rank.
        size: How many ranks there are.
        create: Makes the group from another of the same ranks, under a name that all know, within so many seconds.
        place: What tells this meeting from others of the same name; by default the job that this process belongs to.
    """

    def __init__(
        self,
        name: str,
        rank: int,
        size: int,
        create: Callable[[dist.ProcessGroup, str, float], dist.ProcessGroup],
        place: str = "",
    ) -> None:
        self._name, self._rank, self._size, self._create = name, rank, size, create
        self._key = f"group:{place or ray.get_runtime_context().get_job_id()}:{name}".encode()
        self._lock = threading.Lock()
        self._closed = False
        self._mine = b""
        self._store: dist.TCPStore | None = None
        #: Whether the ranks find out if they are in a company.
        self._asks = False

    def come(self, timeout_s: float) -> Met:
        """Return the group, once all its ranks have come.

        Raises:
            DistError: The group cannot be made; missing ranks are named.
        """
        deadline = time.monotonic() + timeout_s
        secret, offered = job_secret(), companies.offered(self._rank, self._size)
        try:
            mark = self._serve(secret, bool(offered)) if self._rank == 0 else self._find(secret, deadline)
            assert self._store is not None
            company = self._agree(self._store, offered, deadline) if self._asks else None
            if company is None:
                return self._begin(self._store, mark, deadline)
            made = self._make(company, mark, deadline)
            self._store.close()  # which all have read, as they have made the group
            return made
        except BaseException:
            if self._store is not None:
                self._store.close()
            raise
        finally:
            self._withdraw()  # a rank that comes now is of another group
            for each in offered.values():
                companies.leave(each)

    def _agree(self, store: dist.TCPStore, offered: Mapping[str, Company], deadline: float) -> Company | None:
        """Return a company that all ranks are in, if there is one."""
        store.set(f"offer/{self._rank}", " ".join(offered))
        keys = [f"offer/{rank}" for rank in range(self._size)]
        try:
            store.wait(keys, _left_s(deadline))
        except dist.DistTimeoutError:
            late = ", ".join(str(rank) for rank, key in enumerate(keys) if not store.check([key]))
            what = f"group {self._name!r}: ranks {late} of {self._size} have not come in time"
            raise dist.DistTimeoutError(what) from None
        common = set.intersection(*(set(store.get(key).decode().split()) for key in keys))
        return offered[min(common)] if common else None

    def _begin(self, store: dist.TCPStore, mark: str, deadline: float) -> Met:
        """Make a company, and the group in it."""
        root = dist.ProcessGroup.create(
            store=store,
            rank=self._rank,
            size=self._size,
            name=f"company {mark}",
            backend="gloo",
            timeout=_left_s(deadline),
            description=self._name,
        )
        company = Company(mark, root, store)
        companies.enter(company)
        try:
            met = self._make(company, mark, deadline)
        finally:
            companies.leave(company)
        with self._lock:
            self._store = None  # the company's, which others may be in by now
        return met

    def _make(self, company: Company, mark: str, deadline: float) -> Met:
        """Make the group in a company."""
        return Met(company.make(lambda root: self._create(root, mark, _left_s(deadline))), company)

    def cancel(self) -> None:
        """Have a meeting that goes on end with an error."""
        with self._lock:
            self._closed = True
            store = self._store
        self._withdraw()
        if store is not None:
            store.close()

    def _serve(self, secret: bytes, asks: bool) -> str:
        address, mark = ray.util.get_node_ip_address(), secrets.token_hex(8)
        store = dist.TCPStore(address, is_master=True, secret=secret)
        with self._lock:
            self._store = store
            self._check_open()
            self._asks = asks
            self._mine = f"{address} {store.port} {mark} {asks:d}".encode()
            kv._internal_kv_put(self._key, self._mine, overwrite=True, namespace=_SPACE)
        return mark

    def _find(self, secret: bytes, deadline: float) -> str:
        pause_s = _FIRST_PAUSE_S
        while True:
            found = kv._internal_kv_get(self._key, namespace=_SPACE)
            if found and (mark := self._connect(found.decode(), secret, deadline)):
                return mark
            if time.monotonic() > deadline:
                raise dist.DistTimeoutError(f"group {self._name!r}: rank 0 of {self._size} has not come in time")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
            self._check_open()

    def _connect(self, found: str, secret: bytes, deadline: float) -> str:
        """Return the mark of a meeting once connected to its store; nothing if nobody is there any more."""
        address, port, mark, asks = found.split()
        if mark in _joined:
            return ""
        try:
            store = dist.TCPStore(address, int(port), timeout=_left_s(deadline), secret=secret, wait_for_server=False)
        except dist.DistNetworkError:
            return ""
        with self._lock:
            self._store, self._asks = store, asks == "1"
            self._check_open()
        _joined.append(mark)
        return mark

    def _check_open(self) -> None:
        if self._closed:
            raise dist.GroupAbortedError(f"group {self._name!r} was destroyed on rank {self._rank} before it was made")

    def _withdraw(self) -> None:
        with self._lock:  # all the while: who has cancelled may make another group of this name, whose key this is then
            mine, self._mine = self._mine, b""
            if mine and kv._internal_kv_get(self._key, namespace=_SPACE) == mine:
                kv._internal_kv_del(self._key, namespace=_SPACE)


def leave(met: Met) -> None:
    """Leave a group, and its company if it was the last one there."""
    try:
        dist.destroy_process_group(met.group)
    finally:
        companies.leave(met.company)


def _left_s(deadline: float) -> float:
    return max(0.1, deadline - time.monotonic())
