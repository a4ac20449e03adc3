"""Time calls over TCP beside plain sockets: rankwise with and without its compiled parts, gloo and MPI.

    sudo python benchmarks/wire_peers.py                  # two hosts: network namespaces joined by a veth pair
    python benchmarks/wire_peers.py --loopback --rounds 1 --sizes 8
    sudo python benchmarks/wire_peers.py --mpich .venv-mpich/bin/python --torch .venv-torch/bin/python
    sudo python benchmarks/wire_peers.py --hosts 4 --ranks 2          # on each
    sudo python benchmarks/wire_peers.py --ranks 1 3                  # on the first, and on the second
    sudo python benchmarks/wire_peers.py --ranks 2 --calls reduce all_gather reduce_scatter all_to_all gather scatter

Each contender has processes of its own, which also hold a plain socket, and take turns with it: what the machine does
meanwhile meets both. So a cell is the median of the ratios, turn by turn, to plain sockets that do the least which
the call needs, both looking first; the contenders alternate, round by round. Where there are more ranks than
processors, those of a host share one, as they might on a host of their own. The floor of an `all_reduce` is an
exchange of the arrays and their sum, that of a barrier an exchange, that of a message and its answer a ping-pong. So
is that of a call with a root, which is followed by one with the other root: by itself a call in which nobody waits
for some of the ranks, as MPI's are, could be made again and again before the first has ended. The floor of the other
calls is an exchange of what one rank has for one other. Of more ranks only the first ones of the first two hosts have
plain sockets, send messages and are roots; the others sleep while plain sockets take a turn. Below stands how many
times as long each other takes as rankwise, both beside their plain sockets: the geometric mean, and the cell where
that is least. A contender that is not installed is named with the reason. MPICH and torch's gloo may each have an
environment of their own, as `scripts/test` and `scripts/test-torch` make them.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import plain_sockets
from contenders import CONTENDERS, commands, missing
from namespaces import write_secret
from two_hosts import Hosts, forbidden

CALLS = (
    *("all_reduce", "message", "broadcast", "barrier"),
    *("reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"),
)
#: What is timed unless something else is asked for.
USUAL = CALLS[:4]
#: What plain sockets do for as little as a call needs; for the others they exchange what one rank has for one other.
FLOORS = {
    **dict.fromkeys(("all_reduce", "reduce_scatter"), "reduce"),
    **dict.fromkeys(("message", "broadcast", "reduce", "gather", "scatter"), "answer"),
}
_LIMIT_S = 240
#: How much a plain socket is given at a time: all of 1 MiB in one go takes twice as long.
_TURN_NBYTES = 256 << 10
Timed = dict[str, Callable[[], object]]


class Floor(plain_sockets.Plain):
    """Two plain sockets, for any length."""

    def __init__(self, rank: int, nbytes: int) -> None:
        super().__init__(rank, nbytes)
        self.mine, self.theirs = np.zeros(nbytes // 4, np.float32), np.frombuffer(self.room, np.float32)
        self.data = memoryview(self.mine).cast("B")
        self.answer = self.ping if rank == 0 else self.pong

    def send(self) -> None:
        """Send all, and sleep while there is no room."""
        data = self.data
        while len(data):
            try:
                data = data[self.sock.send(data[:_TURN_NBYTES]) :]
            except BlockingIOError:
                time.sleep(0)

    def exchange(self) -> None:
        """Send and receive at the same time."""
        data, room = self.data, self.room
        while len(data) or len(room):
            try:
                if len(data):
                    data = data[self.sock.send(data[:_TURN_NBYTES]) :]
            except BlockingIOError:
                pass
            try:
                if len(room):
                    room = room[self.sock.recv_into(room) :]
            except BlockingIOError:
                pass

    def reduce(self) -> None:
        """Exchange, and add up."""
        self.exchange()
        np.add(self.mine, self.theirs, self.mine)


def by_torch_names(dist: Any, rank: int, far: int, array: Any) -> Timed:
    """Return the calls of a module with the names of torch.distributed, to and from rank `far`."""
    both = (0, far)

    def message() -> None:
        for sender, receiver in (both, both[::-1]):
            if rank == sender:
                dist.send(array, receiver)
            elif rank == receiver:
                dist.recv(array, sender)

    def broadcast() -> None:
        for root in both:
            dist.broadcast(array, root)

    size = dist.get_world_size()
    parts = [array + 0 for _ in range(size)]
    whole = [array.repeat(size) for _ in range(2)]
    more = (
        lambda: [dist.reduce(array, root) for root in both],
        lambda: dist.all_gather(parts, array),
        lambda: dist.reduce_scatter(array, parts),
        lambda: dist.all_to_all_single(*whole),
        lambda: [dist.gather(array, parts if rank == root else None, root) for root in both],
        lambda: [dist.scatter(array, parts if rank == root else None, root) for root in both],
    )
    return dict(zip(CALLS, (lambda: dist.all_reduce(array), message, broadcast, dist.barrier, *more), strict=True))


def by_mpi(rank: int, far: int, array: Any) -> Timed:
    """Return the calls of mpi4py."""
    from mpi4py import MPI

    comm, both = MPI.COMM_WORLD, (0, far)

    def message() -> None:
        for sender, receiver in (both, both[::-1]):
            if rank == sender:
                comm.Send(array, receiver)
            elif rank == receiver:
                comm.Recv(array, sender)

    def broadcast() -> None:
        for root in both:
            comm.Bcast(array, root)

    whole, other = (np.zeros(comm.size * array.size, array.dtype) for _ in range(2))

    def reduce_to_root() -> None:
        for root in both:
            comm.Reduce(MPI.IN_PLACE if rank == root else array, array if rank == root else None, root=root)

    more = (
        reduce_to_root,
        lambda: comm.Allgather(array, whole),
        lambda: comm.Reduce_scatter_block(whole, array),
        lambda: comm.Alltoall(whole, other),
        lambda: [comm.Gather(array, whole if rank == root else None, root) for root in both],
        lambda: [comm.Scatter(whole if rank == root else None, array, root) for root in both],
    )
    reduce = lambda: comm.Allreduce(MPI.IN_PLACE, array)  # noqa: E731
    return dict(zip(CALLS, (reduce, message, broadcast, comm.Barrier, *more), strict=True))


def joined(who: str, rank: int, size: int, far: int) -> tuple[Callable[[int], Timed], Callable[[], None]]:
    """Join a contender's group; return what returns its calls of so many bytes, and what ends it."""
    if "MPI" in who:
        return lambda nbytes: by_mpi(rank, far, np.zeros(nbytes // 4, np.float32)), lambda: None
    if who == "gloo":
        import torch
        import torch.distributed as theirs

        os.environ["MASTER_PORT"] = str(plain_sockets.PORTS[2])
        torch.set_num_threads(1)
        theirs.init_process_group("gloo", rank=rank, world_size=size)
        return lambda nbytes: by_torch_names(theirs, rank, far, torch.zeros(nbytes // 4)), theirs.destroy_process_group
    import rankwise

    os.environ.update(MASTER_PORT=str(plain_sockets.PORTS[1]), RANK=str(rank), WORLD_SIZE=str(size))
    rankwise.init_process_group("gloo")
    return lambda nbytes: by_torch_names(
        rankwise, rank, far, np.zeros(nbytes // 4, np.float32)
    ), rankwise.destroy_process_group


class Quiet:
    """Lets all ranks sleep that have no plain socket while the others take their turn: in a call, MPI's would look."""

    def __init__(self, path: str, rank: int, speaks: bool) -> None:
        self._file = open(path, "a") if path else None  # noqa: SIM115
        self._first, self._speaks = rank == 0, speaks

    def begin(self, barrier: Callable[[], object]) -> None:
        """Begin a turn of plain sockets: return once it is over, or on a rank that has one."""
        if self._file is None:
            return
        if self._first:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        barrier()
        if not self._speaks:
            fcntl.flock(self._file, fcntl.LOCK_SH)
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def end(self) -> None:
        if self._file is not None and self._first:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def work(who: str, names: list[str], sizes: list[int], turns: int, size: int, far: int, turn_file: str) -> None:
    """Be one rank; rank 0 prints microseconds of floor and contender, in each turn."""
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") or os.environ["RANK"])
    found: dict[str, list[tuple[float, float]]] = {}
    calls_of, end = joined(who, rank, size, far)
    for nbytes in sizes:
        floor = Floor(int(rank > 0), nbytes) if rank in (0, far) else None
        calls = calls_of(nbytes)
        quiet, timed = Quiet(turn_file, rank, floor is not None), [calls]
        if floor is not None:
            timed.insert(0, {name: getattr(floor, FLOORS.get(name, "exchange")) for name in CALLS})
        count = max(2, min(200, (4 << 20) // max(nbytes, 1)))
        for turn in range(turns + 1):  # the first is for warming up
            for name in names:
                if name == "barrier" and nbytes != sizes[0]:
                    continue
                times = []
                quiet.begin(calls["barrier"])
                for each in timed:
                    if each is calls:
                        quiet.end()
                    together(floor, calls if size > 2 and each is calls else {})
                    call = each[name]
                    start = time.perf_counter()
                    for _ in range(count):
                        call()
                    times.append((time.perf_counter() - start) / count * 1e6)
                if turn and rank == 0:
                    found.setdefault(f"{name} {nbytes}", []).append((times[0], times[1]))
        together(floor, calls)
        if floor is not None:
            floor.sock.close()
    end()
    if rank == 0:
        print(json.dumps(found), flush=True)


def together(floor: Floor | None, calls: Timed) -> None:
    """Wait for the other plain socket, and with calls for all ranks."""
    if floor is not None:
        floor.exchange()
    if calls:
        calls["barrier"]()


def measured(
    who: str, hosts: Hosts | None, counts: list[int], program: list[str], env: dict[str, str], folder: Path
) -> dict[str, Any]:
    """Run one contender once, and return what rank 0 has found."""
    env = {**env, "RANKWISE_NATIVE": "off" if "Python" in who else "on"}
    if who == "MPICH":  # namespaces of one machine share memory, which it would use
        env |= {
            "MPIR_CVAR_NOLOCAL": str(int(not hosts or max(counts) == 1)),
            "UCX_TLS": "tcp,self",
            "FI_PROVIDER": "tcp",
            "UCX_NET_DEVICES": "eth0" if hosts else "lo",
        }
    lines = commands(who, hosts, counts, [*program, "--work", who, "--ports", *map(str, free_ports())], folder)
    before = sent(hosts, "eth0"), sent(hosts, "lo")
    ranks = [
        subprocess.Popen(line, env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank, line in enumerate(lines)
    ]
    try:
        output, _ = ranks[0].communicate(timeout=_LIMIT_S)
        if any(process.wait(60) for process in ranks):
            raise SystemExit(f"{who}: a rank has failed")
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    between, within = sent(hosts, "eth0") - before[0], sent(hosts, "lo") - before[1]
    if hosts and between < within / 4:  # ranks of one host may talk through it
        raise SystemExit(f"{who}: {between} bytes went between the hosts, but {within} stayed on one")
    return json.loads(output.splitlines()[-1])  # type: ignore[no-any-return]


def sent(hosts: Hosts | None, interface: str) -> int:
    """Return how many bytes have left the hosts through an interface."""
    tables = [
        subprocess.run(
            hosts.command(host, "cat", "/proc/net/dev"), capture_output=True, text=True, check=True, timeout=60
        ).stdout
        for host in range(len(hosts.names) if hosts else 0)
    ]
    lines = (line.split(":") for table in tables for line in table.splitlines() if ":" in line)
    return sum(int(counts.split()[8]) for name, counts in lines if name.strip() == interface)


def free_ports() -> list[int]:
    """Return three ports that nobody uses."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        return [sock.getsockname()[1] for sock in made]


def report(found: dict[str, dict[str, list[tuple[float, float]]]], reasons: dict[str, str]) -> str:
    """Return a table: of each contender the median in microseconds, and the middle ratio to plain sockets."""
    lines = [f"| call, bytes | plain (us) | {' | '.join(found)} |", "|---" * (len(found) + 2) + "|"]
    first = next(iter(found.values()))
    for cell in first:
        plain = statistics.median(floor for theirs in found.values() for floor, _ in theirs[cell])
        cells = [
            f"{statistics.median(own for _, own in theirs[cell]):.1f}, "
            f"{statistics.median(own / floor for floor, own in theirs[cell]):.2f}x"
            for theirs in found.values()
        ]
        lines.append(f"| {cell} | {plain:.1f} | {' | '.join(cells)} |")
    return "\n".join([*lines, *(f"\n{who} is left out: {reason}." for who, reason in reasons.items())])


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Have so many processes do nothing but be busy."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def against(found: dict[str, dict[str, list[tuple[float, float]]]]) -> str:
    """Return how many times as long each other contender takes as the first, both beside their plain sockets."""
    middle = {
        who: {cell: statistics.median(own / floor for floor, own in pairs) for cell, pairs in theirs.items()}
        for who, theirs in found.items()
    }
    ours, *others = middle
    lines = [f"| {ours} against | mean | least |", "|---|---|---|"]
    for who in others:
        times = {cell: ratio / middle[ours][cell] for cell, ratio in middle[who].items()}
        worst = min(times, key=times.__getitem__)
        lines.append(f"| {who} | {statistics.geometric_mean(times.values()):.2f}x | {times[worst]:.2f}x ({worst}) |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--loopback", action="store_true", help="no namespaces: over the loopback interface")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1], help="on each host, or one number for each")
    parser.add_argument("--busy", type=int, default=0, help="how many other processes are busy all the time")
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 16 << 10, 1 << 20, 16 << 20])
    parser.add_argument("--calls", nargs="+", choices=CALLS, default=USUAL)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=2, help="how often each contender is started")
    parser.add_argument("--mpich", default=sys.executable, help="the Python of an environment whose mpi4py loads MPICH")
    parser.add_argument("--torch", default=sys.executable, help="the Python of an environment that has torch")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--ports", type=int, nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--turn-file", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    counts = given.ranks * given.hosts if len(given.ranks) == 1 else given.ranks
    if len(counts) != given.hosts:
        parser.error(f"--ranks: one number for all {given.hosts} hosts is wanted, or one for each")
    if given.work:
        plain_sockets.PORTS = tuple(given.ports)
        work(given.work, given.calls, given.sizes, given.turns, sum(counts), counts[0], given.turn_file)
        return
    reason = "" if given.loopback else forbidden()
    if reason:
        raise SystemExit(f"no namespaces here: {reason}")
    with ExitStack() as stack:
        hosts = None if given.loopback else stack.enter_context(Hosts(given.hosts))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        env = {
            **os.environ,
            "MASTER_ADDR": hosts.addresses[0] if hosts else "127.0.0.1",
            "GLOO_SOCKET_IFNAME": "eth0" if hosts else "lo",
            "RANKWISE_GLOO_TRANSPORT": "tcp" if max(counts) == 1 else "auto",
            "RANKWISE_SECRET_FILE": str(write_secret(folder)),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        pythons = {who: {"MPICH": given.mpich, "gloo": given.torch}.get(who, sys.executable) for who in given.only}
        program = [
            str(Path(__file__).resolve()),
            "--hosts",
            str(given.hosts),
            "--ranks",
            *map(str, given.ranks),
            "--turns",
            str(given.turns),
            "--sizes",
            *map(str, given.sizes),
            "--calls",
            *given.calls,
            *(("--turn-file", str(folder / "turn")) if sum(counts) > 2 else ()),
        ]
        reasons = {who: why for who in given.only if (why := missing(who, pythons[who]))}
        found: dict[str, dict[str, list[tuple[float, float]]]] = {}
        stack.enter_context(busy(given.busy))
        for _ in range(given.rounds):
            for who in given.only:
                if who not in reasons:
                    for cell, pairs in measured(who, hosts, counts, [pythons[who], *program], env, folder).items():
                        found.setdefault(who, {}).setdefault(cell, []).extend(pairs)
    print(report(found, reasons), *([against(found)] if len(found) > 1 else []), sep="\n\n")
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
