"""A real Slurm of a few nodes on this machine: without systemd and cgroups, all nodes on loopback or each in a network.

It needs Slurm, munge and root; `missing()` tells what is not there. On a machine with other things to do all limits are
longer, Slurm's own too: it takes a node whose daemon does not answer in time for dead, ends or requeues what is there,
and a test would see a death that nobody has caused.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from two_hosts import Hosts, forbidden

PYTHON = sys.executable
RANKWISE = str(Path(PYTHON).with_name("rankwise"))
PROGRAMS = Path(__file__).parent / "programs"
#: As the documentation has it: a file in a folder that all nodes see.
WITH_SECRET = f"""
export RANKWISE_SECRET_FILE=$PWD/job.$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}.secret
{RANKWISE} secret new "$RANKWISE_SECRET_FILE"
trap 'rm -f "$RANKWISE_SECRET_FILE"' EXIT
"""
#: How long anything may take, and a command of Slurm's that only asks, on a machine with nothing else to do.
_PATIENCE_S, _ASK_S = 120.0, 20.0
#: Debian keeps the daemons where only root looks.
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "scontrol", "unshare", "nsenter")
_CORES = os.cpu_count() or 1

_CONFIGURATION = """\
ClusterName=rankwise
SlurmctldHost={controller}
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldTimeout={controller_s:.0f}
SlurmdTimeout={node_s:.0f}
MessageTimeout={message_s:.0f}
KillWait={kill_s:.0f}
MinJobAge=60
PropagateResourceLimits=NONE
TmpFS={folder}/tmp
"""


def missing() -> str:
    """Return what this machine lacks for a cluster, empty if nothing."""
    absent = [program for program in _PROGRAMS if shutil.which(program, path=_PATH) is None]
    if absent:
        return f"there is no {' and no '.join(absent)} here (on Debian: apt-get install slurm-wlm munge libpmix-dev)"
    return "" if os.geteuid() == 0 else "slurmd needs root"


class Cluster:
    """A cluster with the nodes `node1`, `node2`, ..., which come up when it is entered.

    Args:
        folder: Where everything of it lies; jobs begin in `folder/work`, which all nodes see.
        nodes: How many there are.
        networked: Each node is a host with an address of its own; otherwise all are on loopback.
        slowness: Tells by how much slower than an idle machine this one is.
    """

    def __init__(self, folder: Path, nodes: int, networked: bool, slowness: Callable[[], float]) -> None:
        self.folder, self.work, self.nodes = folder, folder / "work", [f"node{n}" for n in range(1, nodes + 1)]
        if networked and forbidden():
            raise RuntimeError(forbidden())
        self.networked, self._slowness = networked, slowness
        self._hosts = Hosts(nodes + 1) if networked else None
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "RANKWISE_"))}
        self.environment = {**variables, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": _PATH}

    def __enter__(self) -> Cluster:
        try:
            self._prepare()
            self._munge()
            self._daemon("slurmctld", 0, "slurmctld -D -i")
            for node in self.nodes:
                self.start(node)
            self.wait_for("all nodes idle", lambda: self._idle() == len(self.nodes))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ to use it

    def wait_for(self, what: str, condition: Callable[[], object], look: Callable[[], object] = str) -> None:
        """Wait until a condition holds; if it never does, say so, and what `look` returns then."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > _PATIENCE_S * self._slowness():
                raise AssertionError(f"not within {time.monotonic() - began:.0f} s: {what}\n{look()}")
            time.sleep(0.05)

    def start(self, node: str) -> None:
        """Start a node's daemon."""
        (self.folder / f"spool.{node}").mkdir(exist_ok=True)
        self._daemon(node, 1 + self.nodes.index(node), f"slurmd -D -N {node}")

    def kill(self, node: str) -> None:
        """End a node as a power failure does: its daemon and all that it has started, without a word."""
        host = self._hosts and self._hosts.names[1 + self.nodes.index(node)]
        daemon = self._daemons.pop(node)
        daemon.kill()
        daemon.wait()
        if self._hosts is not None:
            self._hosts.part(1 + self.nodes.index(node))
            _end_all(subprocess.run(["ip", "netns", "pids", host], capture_output=True, text=True, check=True).stdout)

    def command(self, *words: str, host: int = 0) -> list[str]:
        """Return the command line that runs `words` on a host of the cluster; 0 is where its users log in."""
        name = "login" if host == 0 else self.nodes[host - 1]
        own = self.folder / f"tmp.{name}"
        own.mkdir(exist_ok=True)
        # Two nodes on one file system: what PMIx keeps by the job's number has to be apart.
        prepared = f"mount --bind {self.folder}/hosts /etc/hosts; mount --bind {own} {self.folder}/tmp"
        inside = f"{prepared}; {'hostname ' + name + ';' if self._hosts else ''} exec {shlex.join(words)}"
        network = ["nsenter", f"--net=/run/netns/{self._hosts.names[host]}"] if self._hosts else []
        return [*network, "unshare", "--mount", *(["--uts"] if self._hosts else []), "bash", "-c", inside]

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command where users log in, to its end."""
        process = self.begin(*words, **variables)
        try:
            out, _ = process.communicate(timeout=_PATIENCE_S * self._slowness())
        except BaseException:
            process.kill()
            self.cancel_all()
            process.communicate()
            raise
        return subprocess.CompletedProcess(words, process.returncode, out)

    def begin(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Run a command where users log in; its output is one stream."""
        return subprocess.Popen(
            self.command(*words),
            env={**self.environment, **variables},
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def batch(self, script: str, *options: str, ends: bool = True, **variables: str) -> tuple[str, str]:
        """Submit a batch script; return its job's number and, once it has ended, its output."""
        path = self.work / f"batch{time.monotonic_ns()}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        done = self.run(
            "sbatch", "--parsable", "--output", str(path.with_suffix(".out")), *options, str(path), **variables
        )
        number = done.stdout.strip().splitlines()[-1]
        assert done.returncode == 0, done.stdout
        if not ends:
            return number, str(path.with_suffix(".out"))
        self.ended(number)
        return number, path.with_suffix(".out").read_text(errors="replace")

    def ended(self, job: str) -> None:
        """Wait for the end of a job."""
        self.wait_for(f"job {job} to end", lambda: self._none("-j", job), self._queue)

    def cancel_all(self) -> None:
        """Cancel every job, and wait until none is left."""
        self._ask("scancel", "--user", "root")
        self.wait_for("no job to be left", self._none, self._queue)

    def _none(self, *options: str) -> bool:
        """Tell whether Slurm says that there is no such job, or no longer knows it; it may also not answer."""
        code, said = self._ask("squeue", "-h", *options)
        return (code == 0 and not said.strip()) or "Invalid job id" in said

    def _queue(self) -> str:
        return self._ask("squeue", "-O", "JobID,State,Reason,NodeList,RestartCnt")[1] + self._ask("sinfo", "-R")[1]

    def _ask(self, *words: str) -> tuple[int, str]:
        """Run a command of Slurm's that may fail; return its exit code and output, -1 if it does not end."""
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                self.command(*words),
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_ASK_S * self._slowness(),
                check=False,
            )
            return done.returncode, done.stdout
        return -1, ""

    # ------------------------------------------------------------------ up and down

    def _prepare(self) -> None:
        for name in ("state", "munge", "tmp", "work"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "munge").chmod(0o700)
        self.folder.chmod(0o755)
        if self._hosts is not None:
            self._hosts.__enter__()
        addresses = self._hosts.addresses if self._hosts else ["127.0.0.1"] * (1 + len(self.nodes))
        names = [f"{address} {name}" for name, address in zip(["login", *self.nodes], addresses, strict=True)]
        (self.folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
        here = socket.gethostname().partition(".")[0]
        controller = f"{'login' if self._hosts else here}({addresses[0]})"
        slow = self._slowness()
        limits = {"controller_s": 20 * slow, "node_s": 6 * slow, "message_s": 10 * slow, "kill_s": 3 * slow}
        lines = [_CONFIGURATION.format(controller=controller, port=_free_port(), folder=self.folder, **limits)]
        for node, address in zip(self.nodes, addresses[1:], strict=True):
            host = node if self._hosts else here
            lines.append(f"NodeName={node} NodeHostname={host} NodeAddr={address} Port={_free_port()} CPUs={_CORES}\n")
        all_nodes = f"Nodes={','.join(self.nodes)}"
        lines.append(f"PartitionName=main {all_nodes} Default=YES MaxTime=INFINITE OverSubscribe=FORCE:4 State=UP\n")
        (self.folder / "slurm.conf").write_text("".join(lines))
        (self.folder / "mpi.conf").write_text(f"PMIxCliTmpDirBase={self.folder}/tmp\n")

    def _munge(self) -> None:
        folder = self.folder / "munge"
        (folder / "key").write_bytes(os.urandom(1024))
        (folder / "key").chmod(0o600)
        self._daemons["munged"] = subprocess.Popen(
            ["munged", "--foreground", "--force", f"--key-file={folder}/key", f"--socket={self.folder}/munge.socket",
             f"--pid-file={self.folder}/munged.pid", f"--log-file={folder}/log", f"--seed-file={folder}/seed"],
            env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.wait_for("munge's socket", (self.folder / "munge.socket").exists)

    def _daemon(self, name: str, host: int, command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                self.command(*command.split(), host=host), env=self.environment, stdout=out, stderr=out, cwd="/"
            )

    def _idle(self) -> int:
        dead = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
        if dead:
            words = "".join((self.folder / f"{name}.out").read_text(errors="replace")[-2000:] for name in dead)
            raise AssertionError(f"{dead} did not stay: {words}")
        return len(self._ask("sinfo", "-h", "-N", "-t", "idle")[1].splitlines())

    def close(self) -> None:
        """End all jobs and daemons."""
        if "slurmctld" in self._daemons:
            with suppress(AssertionError):
                self.cancel_all()
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(10 * self._slowness())
            daemon.kill()
            daemon.wait()
        self._daemons.clear()
        _end_all(_steps_of(self.folder))
        if self._hosts is not None:
            self._hosts.close()


def waiting(cluster: Cluster, out: Path, size: int) -> None:
    """Wait until all ranks have said that they wait."""
    cluster.wait_for(
        f"{size} ranks to wait",
        lambda: out.exists() and out.read_text().count(" waits on ") == size,
        lambda: out.exists() and out.read_text(),
    )


def _steps_of(folder: Path) -> str:
    """Return the processes that daemons of this cluster have left: those that know its configuration."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"SLURM_CONF={folder}/slurm.conf".encode() in environ.read_bytes().split(b"\0"):
                found.append(environ.parent.name)
    return "\n".join(found)


def _end_all(pids: str) -> None:
    for pid in pids.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
