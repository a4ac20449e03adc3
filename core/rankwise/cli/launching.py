"""How commands start ranks of their own programs, over whichever backend."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from rankwise.cli.commands import CommandError
from rankwise.registry import KNOWN, registry

__all__ = ["command_for", "environment", "find_program", "pick_backend"]


def pick_backend(name: str | None) -> str:
    """Return the backend to use: the one that was named, or the first that can run here.

    Raises:
        CommandError: It cannot run here, or none can.
        BackendNotFoundError: There is none of that name.
    """
    if name is not None:
        registry.get(name)
        answer = registry.availability(name)
        if not answer:
            raise CommandError(f"backend {name!r} cannot run here: {answer.reason} {answer.remedy}".rstrip())
        return name
    for candidate in sorted({*KNOWN, *registry.names()}, key=lambda name: (name not in KNOWN, name)):
        if registry.availability(candidate):
            return candidate
    reasons = "; ".join(f"{name}: {registry.availability(name).reason}" for name in registry.names())
    because = reasons or "none is installed"
    raise CommandError(f"no installed backend can run here ({because}); pip install {KNOWN['gloo']}")


def command_for(backend: str, nprocs: int, module: str, *arguments: str) -> list[str]:
    """Return the command that starts a module on some ranks: with our launcher, or that of the backend's runtime.

    Raises:
        CommandError: The runtime's launcher is not there, or none could start such ranks.
    """
    program = [sys.executable, "-m", module, *arguments]
    launch = registry.get(backend).launch
    if not launch:
        return [sys.executable, "-m", "rankwise.cli", "run", "-n", str(nprocs), *program[1:]]
    if launch == ("threads",):
        raise CommandError(f"the ranks of backend {backend!r} are threads of one process, which no launcher starts")
    found = find_program(launch[0])
    if found is None:
        raise CommandError(f"backend {backend!r} starts its ranks with {launch[0]}, which is not on the path")
    return [found, *(word.format(size=nprocs) for word in launch[1:]), *program]


def find_program(name: str) -> str | None:
    """Find a launcher: beside this Python before anywhere else, as the two belong together."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def environment() -> dict[str, str]:
    """Return an environment in which the launchers of MPI start more ranks than there are cores, and for root too.

    Each rank has one thread for its own work, as `rankwise run` has it.
    """
    more = {
        "OMP_NUM_THREADS": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    if os.geteuid() == 0:
        more |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**more, **os.environ}
