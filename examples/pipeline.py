"""Train a network that is cut into stages, one on each rank: activations go forward, their gradients come back.

    rankwise run -n 4 pipeline.py
    mpiexec -n 4 python pipeline.py mpi

A batch is cut as well, so that the stages work on different pieces at the same time. While a rank computes on one
piece its neighbour already has the piece before, which is the whole point of a pipeline.
"""

from __future__ import annotations

import sys

import numpy as np

import rankwise as dist

WIDTH, PIECES, ROWS, STEPS, RATE = 64, 8, 16, 20, np.float32(0.05)


class Stage:
    """One layer, which remembers what it needs for the way back."""

    def __init__(self, number: int) -> None:
        random = np.random.default_rng(number)
        self.weight = random.standard_normal((WIDTH, WIDTH), np.float32) / np.float32(np.sqrt(WIDTH))
        self.gradient = np.zeros_like(self.weight)
        self.seen: list[tuple[np.ndarray, np.ndarray]] = []

    def forward(self, inputs: np.ndarray) -> np.ndarray:
        """Return the activations."""
        outputs: np.ndarray = np.tanh(inputs @ self.weight)
        self.seen.append((inputs, outputs))
        return outputs

    def backward(self, back: np.ndarray) -> np.ndarray:
        """Add to the gradient, and return that of the inputs; the pieces come back in the order they went."""
        inputs, outputs = self.seen.pop(0)
        back = back * (1 - outputs**2)
        self.gradient += inputs.T @ back
        return np.ascontiguousarray(back @ self.weight.T)

    def descend(self) -> None:
        """Apply the gradient, and begin a new one."""
        self.weight -= RATE * self.gradient
        self.gradient[:] = 0


def pieces(step: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Draw the batch of a step: what goes in and what should come out."""
    inputs = np.random.default_rng((0, step)).standard_normal((PIECES, ROWS, WIDTH), np.float32)
    return [(piece, np.sin(piece)) for piece in inputs]


def error(outputs: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the gradient of half the squared error, of the mean row of the batch."""
    gradient: np.ndarray = (outputs - wanted) / np.float32(PIECES * ROWS)
    return gradient


def step_of_a_stage(stage: Stage, batch: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Do one rank's part of a step; return the loss on the last rank, 0 on the others."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    sent: list[tuple[dist.Work | None, np.ndarray]] = []  # an array must live until its message has ended
    outputs = []
    for inputs, _ in batch:
        if rank > 0:
            inputs = np.empty((ROWS, WIDTH), np.float32)
            dist.recv(inputs, src=rank - 1)
        outputs.append(stage.forward(inputs))
        if rank < last:
            sent.append((dist.isend(outputs[-1], dst=rank + 1), outputs[-1]))
    for (_, wanted), output in zip(batch, outputs, strict=True):
        back = error(output, wanted)
        if rank < last:
            dist.recv(back, src=rank + 1)
        back = stage.backward(back)
        if rank > 0:
            sent.append((dist.isend(back, dst=rank - 1), back))
    for work, _ in sent:
        if work is not None:
            work.wait()
    stage.descend()
    return loss(outputs, batch) if rank == last else 0.0


def step_alone(stages: list[Stage], batch: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Do the same with all stages in one process."""
    for inputs, wanted in batch:
        values = inputs
        for stage in stages:
            values = stage.forward(values)
        back = error(values, wanted)
        for stage in reversed(stages):
            back = stage.backward(back)
    for stage in stages:
        stage.descend()


def loss(outputs: list[np.ndarray], batch: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Return the mean squared error of a batch."""
    wanted = [piece[1] for piece in batch]
    return float(np.mean((np.stack(outputs) - np.stack(wanted)) ** 2))


def main() -> None:
    """Train, show the loss, and compare every stage with a training in one process."""
    dist.init_process_group(sys.argv[1] if len(sys.argv) > 1 else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    stage = Stage(rank)
    for step in range(STEPS):
        found = step_of_a_stage(stage, pieces(step))
        if rank == size - 1 and step in (0, STEPS - 1):
            print(f"step {step + 1}: loss {found:.4f}", flush=True)

    stages = [Stage(number) for number in range(size)]
    for step in range(STEPS):
        step_alone(stages, pieces(step))
    if not np.allclose(stage.weight, stages[rank].weight, atol=1e-5):
        raise SystemExit(f"rank {rank}: the stage is not what one process makes of it")
    dist.barrier()
    if rank == 0:
        print(f"right: {size} stages, {STEPS * PIECES} pieces each way, the same weights as in one process")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
