"""Train a small network data-parallel: every rank has its own data, and the gradients are averaged by all_reduce.

    rankwise run -n 4 data_parallel.py
    rankwise run -n 2 data_parallel.py --backend nccl
    mpiexec -n 4 python data_parallel.py --backend mpi

`rankwise demo` runs this very program, and shows its lines as a table where it can.
"""

from __future__ import annotations

import argparse
import importlib
import time
from typing import Any

import numpy as np

import rankwise as dist

INPUTS, HIDDEN, CLASSES, BATCH = 64, 512, 10, 64


class Network:
    """Two layers whose parameters, and whose gradients, are views of one flat array each."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        shapes = [(INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)]
        count = sum(int(np.prod(shape)) for shape in shapes)
        self.parameters, self.gradients = xp.zeros(count, xp.float32), xp.zeros(count, xp.float32)
        self.views, self.grads = ([*self.split(flat, shapes)] for flat in (self.parameters, self.gradients))

    def split(self, flat: Any, shapes: list[tuple[int, ...]]) -> Any:
        """Cut a flat array into views of the given shapes."""
        begin = 0
        for shape in shapes:
            end = begin + int(np.prod(shape))
            yield flat[begin:end].reshape(shape)
            begin = end

    def learn(self, inputs: Any, labels: Any) -> float:
        """Compute the gradients for a batch, and return the loss."""
        xp, (w1, b1, w2, b2), rows = self.xp, self.views, self.xp.arange(len(labels))
        hidden = xp.maximum(inputs @ w1 + b1, 0)
        scores = hidden @ w2 + b2
        scores -= scores.max(axis=1, keepdims=True)
        chances = xp.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        loss = -float(xp.log(chances[rows, labels] + 1e-9).mean())
        chances[rows, labels] -= 1
        chances /= len(labels)
        back = (chances @ w2.T) * (hidden > 0)
        for gradient, value in zip(
            self.grads, (inputs.T @ back, back.sum(axis=0), hidden.T @ chances, chances.sum(axis=0)), strict=True
        ):
            gradient[...] = value
        return loss


def main() -> None:
    """Train, and let rank 0 tell what happens."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="gloo", help="gloo, mpi or nccl")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--every", type=int, help="print a line every this many steps; default an eighth of them")
    options = parser.parse_args()
    every = options.every or max(options.steps // 8, 1)
    dist.init_process_group(options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    xp: Any = np
    if options.backend == "nccl":
        xp = importlib.import_module("cupy")
        xp.cuda.Device(dist.get_node_local_rank(rank) % xp.cuda.runtime.getDeviceCount()).use()

    # Everyone knows the same teacher, but draws samples of its own.
    teacher = xp.asarray(np.random.default_rng(0).standard_normal((INPUTS, CLASSES), np.float32))
    samples = np.random.default_rng(1 + rank)
    network = Network(xp)
    if rank == 0:
        scale = np.float32(1 / np.sqrt(INPUTS))
        network.parameters[...] = xp.asarray(samples.standard_normal(network.parameters.size, np.float32) * scale)
        count = f"{network.parameters.size:,}"
        print(f"{size} ranks train {count} parameters over {options.backend!r}, each on data of its own")
        print("step   " + "".join(f"loss {r:<5}" for r in range(min(size, 8))) + "  ms/step  all_reduce")
    dist.broadcast(network.parameters, src=0)

    exchanged_s, began = 0.0, time.perf_counter()
    for step in range(1, options.steps + 1):
        inputs = xp.asarray(samples.standard_normal((BATCH, INPUTS), np.float32))
        loss = network.learn(inputs, (inputs @ teacher).argmax(axis=1))
        before = time.perf_counter()
        dist.all_reduce(network.gradients)
        if xp is not np:  # a GPU goes on while Python is already here
            xp.cuda.get_current_stream().synchronize()
        exchanged_s += time.perf_counter() - before
        network.parameters -= xp.float32(0.5 / size) * network.gradients
        if step in (1, options.steps) or step % every == 0:
            report(step, loss, exchanged_s / step, (time.perf_counter() - began) / step, network.gradients.nbytes, xp)

    # Ranks that began alike and have added the same gradients, bit by bit, have the same parameters.
    sums = [xp.zeros(1, xp.float64) for _ in range(size)]
    dist.all_gather(sums, network.parameters.sum(dtype=xp.float64).reshape(1))
    if rank == 0:
        same = all(float(total[0]) == float(sums[0][0]) for total in sums)
        moved = network.gradients.nbytes * options.steps
        print(f"{options.steps} times all_reduce of {network.gradients.nbytes / 1e3:.0f} kB of gradients,")
        print(f"{moved / 1e6:.0f} MB from each rank, {exchanged_s:.2f} s; before that one broadcast of the parameters")
        if not same:
            raise SystemExit("the ranks have ended with different parameters")
        print("parameters of all ranks are identical, bit for bit")
    dist.destroy_process_group()


def report(step: int, loss: float, exchange_s: float, step_s: float, nbytes: int, xp: Any) -> None:
    """Collect what every rank has seen, and let rank 0 print it."""
    size = dist.get_world_size()
    losses = [xp.zeros(1, xp.float32) for _ in range(size)]
    dist.all_gather(losses, xp.full(1, loss, xp.float32))
    if dist.get_rank() == 0:
        # What crosses a rank's link in the best case, as nccl-tests count it.
        rate = 2 * (size - 1) / size * nbytes / exchange_s
        shown = "".join(f"{float(value[0]):<10.4f}" for value in losses[:8])
        print(f"{step:<5}  {shown}  {step_s * 1e3:<7.1f}  {rate / 1e6:.0f} MB/s", flush=True)


if __name__ == "__main__":
    main()
