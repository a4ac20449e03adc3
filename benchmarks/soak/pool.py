"""Ranks that run one program after the other: processes, or threads for a backend whose ranks are threads."""

from __future__ import annotations

import os
import tempfile
from importlib import import_module
from typing import Any

import rankwise as dist
from rankwise.backends import IN_THREADS
from rankwise.backends.registry import registry
from rankwise.groups.world import current
from rankwise_local import LocalWorld
from rankwise_network.launcher_env import from_environment
from rankwise_testing import RankPool
from soak import pauses
from soak.program import Program
from soak.rank import perform

#: Ways of the backend gloo, by the variables that choose them; "hosts" has ranks that take each other for far away.
TRANSPORTS: dict[str, dict[str, str]] = {
    "tcp": {"RANKWISE_GLOO_TRANSPORT": "tcp"},
    "shm": {"RANKWISE_GLOO_TRANSPORT": "shm"},
    "auto": {"RANKWISE_GLOO_TRANSPORT": "auto"},
    "hosts": {"RANKWISE_GLOO_TRANSPORT": "auto", "SOAK_RANKS_A_HOST": "3"},
    "default": {},
}
_WORLD_S = 60.0


class Pool:
    """Processes of one backend and transport."""

    def __init__(self, backend: str, transport: str, size: int) -> None:
        self.backend, self.size = backend, size
        spec = registry.get(backend)
        self._folder = tempfile.TemporaryDirectory(prefix="rankwise-soak-")
        self._lives = 0
        self._has_runtime = spec.runtime is not None
        self._pool = RankPool(size, launch=spec.launch, env=TRANSPORTS[transport])

    def run(self, program: Program, timeout_s: float, limit_s: float) -> None:
        """Run a program, or raise; afterwards the processes are fresh if it has failed."""
        where = None if self._has_runtime else f"file://{self._folder.name}/{self._lives}"
        doomed = [program.members[s.what["victim"]] for s in program.steps if s.kind == "death"]
        try:
            self._pool.run(serve, self.backend, where, program, timeout_s, timeout=limit_s, doomed=doomed)
        except BaseException:
            self._renew()
            raise
        if doomed:
            self._renew()

    def close(self) -> None:
        """End the processes."""
        self._pool.close(2.0)
        self._folder.cleanup()

    def _renew(self) -> None:
        self._lives += 1
        self._pool.close(0.5)


class Threads:
    """Threads of this process, for a backend such as `local`."""

    def __init__(self, backend: str, size: int) -> None:
        self._world = LocalWorld(size, backend, _WORLD_S)

    def run(self, program: Program, timeout_s: float, limit_s: float) -> None:
        """Run a program, or raise."""
        self._world.run_s = limit_s
        self._world.run(_take_part, program, timeout_s)

    def close(self) -> None:
        """End the world."""
        self._world.end()


def make_pool(backend: str, transport: str, size: int) -> Pool | Threads:
    """Return where programs for a backend run."""
    if registry.get(backend).launch == IN_THREADS:
        return Threads(backend, size)
    return Pool(backend, transport, size)


def serve(backend: str, where: str | None, program: Program, timeout_s: float) -> None:
    """Run a program in this process, which joins the pool's world if it is not there yet."""
    if not dist.is_initialized():
        _pretend_to_be_far_away()
        place: dict[str, Any] = {}
        if where is not None:
            environment = from_environment()
            place = {"init_method": where, "rank": environment.rank, "world_size": environment.world_size}
        dist.init_process_group(backend, timeout=_WORLD_S, **place)
    _take_part(program, timeout_s)
    if any(step.kind == "death" for step in program.steps):
        current().reset()  # the pool is not used any more


def _take_part(program: Program, timeout_s: float) -> None:
    pauses.begin()
    mine = dist.get_rank()
    if mine in program.members:
        perform(program, program.members.index(mine), timeout_s)


def _pretend_to_be_far_away() -> None:
    """Let gloo believe that only every few ranks share a machine."""
    ranks = int(os.environ.get("SOAK_RANKS_A_HOST", "0"))
    if not ranks:
        return
    host = f"host-{from_environment().rank // ranks}"
    cards = import_module("rankwise_gloo_tcp.setup.cards")
    vars(cards)["machine"] = lambda: (host, host)
