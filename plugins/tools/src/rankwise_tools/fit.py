"""Measure the network of a job, and fit the parameters with which `rankwise explain` predicts times.

Every rank of a job runs it, one on each host or several; rank 0 prints and saves what was found, with the error:

    srun -N 4 -n 4 python -m rankwise_tools.fit --save network.json
    rankwise run -n 1 --nnodes 4 --node-rank 0 ... -m rankwise_tools.fit --save network.json
    rankwise explain all_reduce --ranks 1024 --hosts 128 --network network.json
"""

from __future__ import annotations

import argparse
import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

import rankwise as dist
from rankwise.launching import Explanation, registry
from rankwise_launch.toolbox import columns, counted, format_nbytes, format_seconds
from rankwise_tools.bench.libraries import Rankwise
from rankwise_tools.explaining.network import LONG_NBYTES, Line, Parameters, Sample, fitted, off_by, predicted

_MESSAGES, _LONG = (8, 4 << 10), (LONG_NBYTES, 4 * LONG_NBYTES, 16 * LONG_NBYTES)
_OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "barrier")
_SIZES = (1 << 10, 64 << 10, 1 << 20, 8 << 20)
#: So long each figure is measured; with how many other ranks at the most; how many messages, and long ones, are a row.
_FIGURE_S, _PEERS, _ROW, _LONG_ROW = 0.1, 4, 64, 8
_COMBINED_NBYTES = 256 << 10


def main() -> None:
    """Be one rank."""
    parser = argparse.ArgumentParser(prog="python -m rankwise_tools.fit", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--backend", default="gloo", metavar="NAME", help="the backend; default gloo")
    parser.add_argument("--save", type=Path, metavar="FILE", help="save the parameters for rankwise explain --network")
    options = parser.parse_args()
    job = Rankwise(options.backend)
    places = _places()
    hosts = list(Counter(places).values())
    network = _network(job, _away(places))
    lines = [_measured(job, options.backend, hosts, network, op, n) for op in _OPS for n in _sizes(op)]
    if job.rank == 0:
        print(_report(job.size, hosts, network, lines))
        if options.save is not None:
            network.save(options.save)
    job.close()


def _sizes(op: str) -> tuple[int, ...]:
    return (0,) if op == "barrier" else _SIZES


def _places() -> list[str]:
    """Return on which host each rank is; a network namespace is a host."""
    place = (socket.gethostname(), os.stat("/proc/self/ns/net").st_ino if os.path.exists("/proc/self/ns/net") else 0)
    places: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(places, place)
    return list(map(str, places))


def _away(places: Sequence[str]) -> Sequence[int]:
    """Return the ranks between which and rank 0 the network is; where there is none, all others."""
    return [rank for rank, place in enumerate(places) if place != places[0]] or range(1, len(places))


# ---------------------------------------------------------------------- measuring


def _network(job: Rankwise, others: Sequence[int]) -> Parameters:
    """Measure messages between rank 0 and some of the others, one after the other; all ranks return the same."""
    peers = others[:: max(1, len(others) // _PEERS)][:_PEERS]
    found = [_messages(job, peer) for peer in peers]
    samples = [Sample(nbytes, median(times[nbytes] for times, _ in found)) for nbytes in (*_MESSAGES, *_LONG)]
    told = np.array(fitted(samples, _combining(), median(cost for _, cost in found) * 1e6))
    dist.broadcast(told, 0)
    return Parameters(*told.tolist())


def _messages(job: Rankwise, peer: int) -> tuple[dict[int, float], float]:
    """Return what a message to a rank takes by size, and what each of many small ones in a row costs.

    Long messages go in a row: what limits the rate of a wire may let single ones pass faster.
    """
    small = {nbytes: _timed(job, lambda nbytes=nbytes: _bounce(job, peer, nbytes)) / 2 for nbytes in _MESSAGES}  # type: ignore[misc]
    latency_s = small[_MESSAGES[0]]

    def row(nbytes: int, count: int) -> float:
        """Return what a row takes beyond the latencies of its first message and of the answer."""
        return max(0.0, _timed(job, lambda: _row(job, peer, nbytes, count)) - 2 * latency_s)

    long = {nbytes: latency_s + row(nbytes, _LONG_ROW) / _LONG_ROW for nbytes in _LONG}
    return {**small, **long}, row(_MESSAGES[0], _ROW) / (_ROW - 1)


def _bounce(job: Rankwise, peer: int, nbytes: int) -> None:
    array = _buffers.setdefault(nbytes, np.zeros(nbytes, np.uint8))
    if job.rank == 0:
        dist.send(array, peer)
        dist.recv(array, peer)
    elif job.rank == peer:
        dist.recv(array, 0)
        dist.send(array, 0)


def _row(job: Rankwise, peer: int, nbytes: int, count: int) -> None:
    array = _buffers.setdefault(nbytes, np.zeros(nbytes, np.uint8))
    for _ in range(count):
        if job.rank == 0:
            dist.send(array, peer)
        elif job.rank == peer:
            dist.recv(array, 0)
    if job.rank == peer:
        dist.send(array[:1], 0)
    elif job.rank == 0:
        dist.recv(array[:1], peer)


_buffers: dict[int, np.ndarray] = {}


def _combining() -> float:
    """Return how many GB a second this rank adds up."""
    total, other = np.zeros(_COMBINED_NBYTES // 4, np.float32), np.zeros(_COMBINED_NBYTES // 4, np.float32)
    times = []
    for _ in range(50):
        began = perf_counter()
        np.add(total, other, out=total)
        times.append(perf_counter() - began)
    return _COMBINED_NBYTES / median(times) / 1e9


def _timed(job: Rankwise, call: Callable[[], object]) -> float:
    """Return how long a call takes, in the middle of several, on the slowest rank."""
    call()
    job.barrier()
    began = perf_counter()
    call()
    calls = max(5, min(300, int(_FIGURE_S / max(1e-6, job.slowest(perf_counter() - began)))))
    times = []
    for _ in range(calls):
        began = perf_counter()
        call()
        times.append(perf_counter() - began)
    job.barrier()
    return job.slowest(median(times))


def _measured(job: Rankwise, backend: str, hosts: list[int], network: Parameters, op: str, nbytes: int) -> Line:
    count = -(-max(nbytes // 4, 1) // job.size) * job.size
    seconds = _timed(job, job.prepare(op, count))
    nbytes = count * 4 if nbytes else 0
    explain = registry.get(backend).explain
    if explain is None:
        return Line(op, nbytes, "?", seconds, None)
    explained: Explanation = explain(op, nbytes, hosts)
    return Line(op, nbytes, explained.taken.name, seconds, predicted(op, nbytes, job.size, explained, network))


# ---------------------------------------------------------------------- saying it


def _report(size: int, hosts: list[int], network: Parameters, lines: list[Line]) -> str:
    alpha, gbit, combine, message = (f"{value:.3g}" for value in network)
    rows = [["op", "size", "algorithm", "measured", "predicted"]]
    for line in lines:
        times = [format_seconds(line.measured_s), "" if line.predicted_s is None else format_seconds(line.predicted_s)]
        rows.append([line.op, format_nbytes(line.nbytes) if line.nbytes else "", line.algorithm, *times])
    off = off_by(lines)
    error = "none of these is predicted: the ranks share a host, or the backend has algorithms that the model lacks"
    if off is not None:
        error = f"predictions are off by a factor of {off[0]:.2f} in the middle, {off[1]:.2f} at most"
    return f"""\
{size} ranks on {counted(len(hosts), "host")}: a message takes {alpha} us and costs {message} us at both ends, a link
carries {gbit} Gbit/s, and a rank adds up {combine} GB/s

for rankwise explain: --alpha-us {alpha} --gbit-per-s {gbit} --combine-gb-per-s {combine} --message-us {message}

{columns(rows, right=(1, 3, 4))}

{error}"""


if __name__ == "__main__":
    main()
