"""Runs programs under the `mpiexec` of the MPI library that this environment has."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.by_reference import call
from tests.plugins.mpi import singletons

collect_ignore_glob = [] if find_spec("mpi4py") else ["*"]

PROGRAMS = Path(__file__).parent / "programs"

#: Open MPI refuses root, and more processes than cores, unless told; Open MPI 5 reads the last, 4 the one before.
_ALLOWED = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
_OURS = ("OMPI_", "PMI", "PRTE_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MPI_")

Run = subprocess.CompletedProcess[str]
Launch = Callable[..., Run]


def environment(**variables: str) -> dict[str, str]:
    """Return an environment without any launcher's variables but those given."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return {**clean, "PYTHONFAULTHANDLER": "1", "PYTHONWARNINGS": "error", **_ALLOWED, **variables}


def launcher() -> str:
    """Return the `mpiexec` of this environment, or else the first on the path."""
    own = Path(sys.executable).parent / "mpiexec"
    found = str(own) if own.exists() else shutil.which("mpiexec")
    if found is None:
        pytest.fail("mpi4py is installed, but there is no mpiexec beside it or on the path")
    return found


def have_them_say_where_they_are(launcher: int) -> None:
    """End the ranks of a launcher, each of which writes where its threads stand, as faulthandler is on."""
    for pid in ranks_of(launcher):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGABRT)
    deadline = time.monotonic() + 5
    while ranks_of(launcher) and time.monotonic() < deadline:
        time.sleep(0.05)


def ranks_of(launcher: int) -> list[int]:
    """Return the interpreters among the descendants of a launcher."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
            parents[int(path.parent.name)] = int(rest.split()[1]), name
    found, below = [], {launcher}
    while below:
        below = {pid for pid, (parent, _) in parents.items() if parent in below}
        found += [pid for pid in below if "python" in parents[pid][1]]
    return found


@pytest.fixture
def clean_environment() -> Callable[..., dict[str, str]]:
    """Make an environment without any launcher's variables but those given."""
    return environment


@pytest.fixture
def alone(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Call a function in a process that no launcher has started, and return what it returns."""

    def run(function: Callable[..., object], *args: object, **variables: str) -> Any:
        return call(function, *args, timeout_s=request.module.PATIENCE_S, env=environment(**variables))

    return run


@pytest.fixture
def own_mpiexec() -> str:
    """The `mpiexec` that belongs to the library."""
    return launcher()


@pytest.fixture(scope="session")
def library() -> str:
    """The name and version of the MPI library."""
    return call(singletons.version, timeout_s=60, env=environment(MPI4PY_RC_INITIALIZE="0"))


@pytest.fixture
def mpiexec() -> Launch:
    """Run a program of `programs/` on some ranks, and return how it ended."""

    def run(
        size: int, program: str, *args: str, options: tuple[str, ...] = (), timeout_s: float = 60, **variables: str
    ) -> Run:
        command = [launcher(), *options, "-n", str(size), sys.executable, str(PROGRAMS / program), *args]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**variables),
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                have_them_say_where_they_are(process.pid)
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
                pytest.fail(f"{program} on {size} ranks has not ended within {timeout_s:g} s\n{out}\n{err}")
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    return run


@pytest.fixture
def fine(mpiexec: Launch) -> Launch:
    """Run a program that prints "fine" on each rank, and fail unless all do."""

    def run(size: int, program: str, *args: str, **terms: object) -> Run:
        done = mpiexec(size, program, *args, **terms)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert done.stdout.count("fine") == size, f"{done.stdout}\n{done.stderr}"
        return done

    return run
