"""How the contenders of `wire_peers` are started: which can take part, and the command lines of their ranks."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from two_hosts import Hosts

CONTENDERS = ("rankwise", "rankwise in Python", "gloo", "Open MPI", "MPICH")


def missing(who: str, python: str) -> str:
    """Return why a contender cannot take part with a Python; empty if it can."""
    if shutil.which(python) is None:
        return f"there is no {python}"
    module = {"gloo": "torch", "rankwise": "rankwise_native", "rankwise in Python": "rankwise"}.get(who, "mpi4py")
    looked = subprocess.run([python, "-c", f"import numpy, {module}"], capture_output=True, timeout=120, check=False)
    if looked.returncode:
        return f"{module} is not installed for {python}"
    if "MPI" not in who:
        return ""
    if _mpiexec(python) is None:
        return f"there is no mpiexec beside {python}"
    told = subprocess.run([str(_mpiexec(python)), "--version"], capture_output=True, text=True, timeout=60).stdout
    ours = ("Open MPI" in told or "OpenRTE" in told) == (who == "Open MPI")
    return "" if ours else f"the mpiexec beside {python} is not {who}'s"


def _mpiexec(python: str) -> str | None:
    return shutil.which("mpiexec", path=os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", "")]))


def commands(who: str, hosts: Hosts | None, ranks: list[int], program: list[str], folder: Path) -> list[list[str]]:
    """Return the command lines that start the ranks of a contender, of which there are so many on each host."""
    size = sum(ranks)
    if "MPI" not in who:
        places = [host for host, count in enumerate(ranks) for _ in range(count)]
        return [hosts.command(host, *kept(size, host), *program) if hosts else program for host in places]
    words = [str(_mpiexec(program[0])), "-n", str(size)]
    agent = folder / "agent"  # starts a command on another host, as ssh would
    if hosts:
        # Open MPI takes hosts of one name for one host, on which it starts all ranks.
        cases = "".join(
            f"{address}) exec ip netns exec {name} {' '.join(kept(size, host))} "
            f'unshare --uts sh -c "hostname {name}; $*";; '
            for host, (address, name) in enumerate(zip(hosts.addresses, hosts.names, strict=True))
        )
        agent.write_text(f'#!/bin/sh\nhost=$1; shift\ncase "$host" in {cases}esac\n')
        agent.chmod(0o755)
    if who == "Open MPI":
        words += ["--map-by", "slot" if hosts else ":oversubscribe", "--bind-to", "none"]
        words += ["--mca", "btl", "tcp,sm,self" if hosts and max(ranks) > 1 else "tcp,self", "--mca", "pml", "ob1"]
        words += ["--mca", "mpi_yield_when_idle", str(int(size > (os.cpu_count() or 1)))]
        if hosts:
            words += [
                "--host",
                _slots(hosts, ranks),
                "--mca",
                "plm_rsh_agent",
                str(agent),
            ]
            words += ["--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0"]
            words += ["-x", "MASTER_ADDR"]
    elif hosts:
        words += [
            "-launcher",
            "rsh",
            "-launcher-exec",
            str(agent),
            "-hosts",
            _slots(hosts, ranks),
            "-iface",
            "eth0",
        ]
    return [hosts.command(0, *kept(size, 0), *words, *program) if hosts else [*words, *program]]


def _slots(hosts: Hosts, ranks: list[int]) -> str:
    return ",".join(f"{address}:{count}" for address, count in zip(hosts.addresses, ranks, strict=True))


def kept(size: int, host: int) -> list[str]:
    """Return what keeps a host's ranks to one processor, where there are more ranks than processors."""
    processors = os.cpu_count() or 1
    return ["taskset", "-c", str(host % processors)] if size > processors else []
