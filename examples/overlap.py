"""Train data-parallel, and let gradients travel while the next ones are computed: all_reduce by buckets, asynchronous.

    rankwise run -n 4 overlap.py
    mpiexec -n 4 python overlap.py mpi

The backward pass ends with the first layer, so the gradients of the last layers are ready long before. Layers share
buckets: one flat array each, which travels as one message as soon as the last gradient in it is written.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np

import rankwise as dist

WIDTHS = (64, 256, 256, 256, 256, 8)
BUCKET_NBYTES, BATCH, STEPS, RATE = 300_000, 32, 30, np.float32(0.05)


class Bucket:
    """The gradients of some neighbouring layers, in one array."""

    def __init__(self, layers: list[int], shapes: list[tuple[int, int]]) -> None:
        sizes = [shapes[layer][0] * shapes[layer][1] for layer in layers]
        self.array = np.zeros(sum(sizes), np.float32)
        pieces = np.split(self.array, np.cumsum(sizes)[:-1])
        self.gradients = {layer: piece.reshape(shapes[layer]) for layer, piece in zip(layers, pieces, strict=True)}
        self.last = min(layers)  # the backward pass comes to it at the end
        self.work: dist.Work | None = None


def in_buckets(shapes: list[tuple[int, int]]) -> list[Bucket]:
    """Collect layers from the last to the first, until a bucket is full."""
    plans: list[list[int]] = [[]]
    nbytes = 0
    for layer in reversed(range(len(shapes))):
        nbytes += 4 * shapes[layer][0] * shapes[layer][1]
        if plans[-1] and nbytes > BUCKET_NBYTES:
            plans.append([])
            nbytes = 4 * shapes[layer][0] * shapes[layer][1]
        plans[-1].append(layer)
    return [Bucket(layers, shapes) for layers in plans]


class Network:
    """Layers of tanh, trained to fit the outputs of a teacher."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)  # the same everywhere; otherwise one would broadcast
        self.shapes = list(pairwise(WIDTHS))
        self.weights = [random.standard_normal(s, np.float32) / np.float32(np.sqrt(s[0])) for s in self.shapes]
        self.buckets = in_buckets(self.shapes)
        self.of_layer = {layer: bucket for bucket in self.buckets for layer in bucket.gradients}

    def gradients(self, inputs: np.ndarray, wanted: np.ndarray, ready: Callable[[Bucket], object]) -> None:
        """Go forward, then backward, and say of each bucket that it is ready."""
        values = [inputs]
        for weight in self.weights:
            values.append(np.tanh(values[-1] @ weight))
        back = (values[-1] - wanted) / np.float32(len(inputs))
        for layer in reversed(range(len(self.weights))):
            back = back * (1 - values[layer + 1] ** 2)
            bucket = self.of_layer[layer]
            np.matmul(values[layer].T, back, out=bucket.gradients[layer])
            if layer == bucket.last:
                ready(bucket)
            back = back @ self.weights[layer].T

    def descend(self, parts: int) -> None:
        """Wait for each bucket, and apply the mean of the gradients in it."""
        for bucket in self.buckets:
            if bucket.work is not None:
                bucket.work.wait()
            for layer, gradient in bucket.gradients.items():
                self.weights[layer] -= RATE / np.float32(parts) * gradient


def send_off(bucket: Bucket) -> None:
    """Begin the sum over all ranks; the bucket must not be touched before the work has ended."""
    bucket.work = dist.all_reduce(bucket.array, async_op=True)


def send_and_wait(bucket: Bucket) -> None:
    """Form the sum while nothing else happens, to compare."""
    dist.all_reduce(bucket.array)


def samples(step: int, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw a rank's batch of a step."""
    inputs = np.random.default_rng((step, rank)).standard_normal((BATCH, WIDTHS[0]), np.float32)
    return inputs, np.sin(inputs[:, : WIDTHS[-1]])


def train(ready: Callable[[Bucket], object]) -> tuple[Network, float]:
    """Train this rank's copy; return it and the time of a step."""
    network = Network()
    dist.barrier()
    began = time.perf_counter()
    for step in range(STEPS):
        network.gradients(*samples(step, dist.get_rank()), ready)
        network.descend(dist.get_world_size())
    return network, (time.perf_counter() - began) / STEPS


def train_alone(ranks: int) -> Network:
    """Train on the data of all ranks in this process, without any communication."""
    network = Network()
    for step in range(STEPS):
        inputs, wanted = zip(*(samples(step, rank) for rank in range(ranks)), strict=True)
        network.gradients(np.concatenate(inputs), np.concatenate(wanted), lambda bucket: None)
        network.descend(1)
    return network


def main() -> None:
    """Train with and without overlap, and compare the results with those of one process."""
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    overlapped, overlapped_s = train(send_off)
    waiting, waiting_s = train(send_and_wait)
    alone = train_alone(size)
    for mine, other, expected in zip(overlapped.weights, waiting.weights, alone.weights, strict=True):
        if not np.allclose(mine, other, atol=1e-3):
            raise SystemExit(f"rank {rank}: with overlap the weights are different")
        if not np.allclose(mine, expected, atol=1e-3):
            raise SystemExit(f"rank {rank}: the weights are not those of one process with all the data")
    if rank == 0:
        sizes = ", ".join(f"{bucket.array.nbytes // 1000} kB" for bucket in overlapped.buckets)
        print(f"{size} ranks, {STEPS} steps, {len(overlapped.buckets)} buckets: {sizes}")
        print(f"waiting for each bucket {waiting_s * 1e3:6.2f} ms a step")
        print(f"with overlap            {overlapped_s * 1e3:6.2f} ms a step, the same weights but for rounding")
        print("right: they are those of one process that has all the data")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
