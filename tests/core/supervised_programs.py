"""Programs whose backends do not return, or are not there on one rank; each rank returns what it was told, and when."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import rankwise as dist
from rankwise.backends import BackendSpec, Capabilities, Context, Device, Runtime, native
from rankwise.kits import registry
from rankwise_local import LocalCommunicator

#: Until the program has been told; no thread is left when it ends.
TOLD = threading.Event()
#: Communicators that were closed.
CLOSED: list[str] = []

Told = tuple[str, str, float]


def told(call: Callable[[], Any]) -> Told:
    """Return what kind of error a call raises, what it says, and after how many seconds."""
    began = time.monotonic()
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - began
    return "", "", time.monotonic() - began


def register(
    create: Callable[[Context], dist.Communicator] = LocalCommunicator,
    availability: Callable[[], dist.Availability] = lambda: dist.Availability(True),
    runtime: Callable[[float], Runtime] | None = None,
) -> None:
    table = Capabilities("acme", {"cpu": Device(native("send", "recv"))})
    registry.register(BackendSpec("acme", 1, table, create, availability, runtime), replace=True)


def sleep() -> None:
    TOLD.wait(60)


class Sleeper(LocalCommunicator):
    """One that does not return from what ends it."""

    def abort(self, error: dist.DistError) -> None:
        sleep()

    def close(self) -> None:
        sleep()


class Late(LocalCommunicator):
    """One that comes too late."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        sleep()

    def close(self) -> None:
        CLOSED.append(self.context.name)
        super().close()


def is_second() -> bool:
    return os.environ["RANK"] == "1"


def begin_with_one_that_sleeps() -> Told:
    def create(context: Context) -> dist.Communicator:
        if context.rank == 1:
            sleep()
        return LocalCommunicator(context)

    register(create)
    try:
        return told(lambda: dist.init_process_group("acme", timeout=2))
    finally:
        TOLD.set()


def absent() -> dist.Availability:
    return dist.Availability(False, "no such hardware", "buy some") if is_second() else dist.Availability(True)


def begin_without() -> Told:
    register(availability=absent)
    return told(lambda: dist.init_process_group("acme", timeout=60))


def begin_with_one_that_does_not_say() -> Told:
    def availability() -> dist.Availability:
        if is_second():
            sleep()
        return dist.Availability(True)

    register(availability=availability)
    try:
        return told(lambda: dist.init_process_group("acme", timeout=4))
    finally:
        TOLD.set()


def begin_without_plugin() -> Told:
    if not is_second():
        register()
    return told(lambda: dist.init_process_group("acme", timeout=60))


def make_without(how: str) -> tuple[Told, float]:
    """Make a group; and say what the world does afterwards."""
    dist.init_process_group("gloo", timeout=60)
    register(availability=absent)
    make: dict[str, Callable[[], object]] = {
        "new": lambda: dist.new_group(backend="acme", timeout=60),
        "local": lambda: dist.new_group([0, 1], backend="acme", timeout=60, use_local_synchronization=True),
        "alone": lambda: dist.new_group([1], backend="acme", timeout=60),
        "split": lambda: dist.split_group(split_ranks=[[1, 0]], backend="acme", timeout=60),
        "subgroups": lambda: dist.new_subgroups(2, backend="acme", timeout=60),
        "create": lambda: dist.ProcessGroup.create(
            rank=dist.get_rank(), size=2, name="pair", backend="acme", timeout=60, parent=dist.group.WORLD
        ),
    }
    said = told(make[how])
    total = np.ones(1)
    dist.all_reduce(total, group=dist.new_group())
    dist.destroy_process_group()
    return said, float(total[0])


def try_again() -> tuple[Told, float]:
    """What could not begin with one backend begins with another."""
    said = begin_without()
    dist.init_process_group("gloo", timeout=60)
    total = np.ones(1)
    dist.all_reduce(total)
    dist.destroy_process_group()
    return said, float(total[0])
