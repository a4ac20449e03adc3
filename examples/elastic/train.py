"""Train a small network on ranks that may die and come back; shoot.py starts the ranks, and shoots them.

Every rank knows all examples and takes its share of them in each step. The ranks add up their gradients, so the weights
are the same on all ranks, and do not depend on how many ranks there are. All ranks commit each step.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import rankwise as dist

HIDDEN, EXAMPLES, STEPS, RATE = 16, 300, 400, 0.25
#: How long a step takes at least, so that there is time for newcomers to start; real steps take longer.
PAUSE_S = 0.01


def drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the examples: places with how high a wave is there, and the weights of a network that knows nothing."""
    random = np.random.default_rng(6)
    x = random.uniform(-1, 1, (EXAMPLES, 2))
    return x, np.sin(2 * x.sum(1, keepdims=True)), random.normal(0, 0.5, 3 * HIDDEN)


def slopes(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the gradient of the sum of squared errors over some examples, and behind it that sum."""
    inner, outer = weights[: 2 * HIDDEN].reshape(2, HIDDEN), weights[2 * HIDDEN :].reshape(HIDDEN, 1)
    hidden = np.tanh(x @ inner)
    error = hidden @ outer - y
    back = x.T @ (error @ outer.T * (1 - hidden**2))
    return np.concatenate([back.ravel(), (hidden.T @ error).ravel(), [np.sum(error**2)]])


def tell(epoch: dist.elastic.Epoch) -> None:
    """Let rank 0 print who has left and who has joined."""
    if epoch.rank == 0:
        changes = [f"rank {each.rank} left: {each.why}" for each in epoch.left]
        changes += [f"rank {each.rank} joined" for each in epoch.joined]
        print(f"epoch {epoch.number}: {epoch.size} ranks; {'; '.join(changes)}", flush=True)


@dist.elastic.run(on_epoch=tell)
def train(state: dist.elastic.State, x: np.ndarray, y: np.ndarray, size: int) -> None:
    """Take the steps that are left; ends only when all ranks are there, so that none comes back after the end."""
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    while state.step < STEPS or dist.get_world_size() < size:
        total = slopes(state.weights, x[mine], y[mine])
        dist.all_reduce(total)
        state.weights -= RATE / len(x) * total[:-1]
        state.step += 1
        if dist.get_rank() == 0 and state.step % 20 == 0:
            print(f"step {state.step}: loss {total[-1] / len(x):.4f}", flush=True)
        time.sleep(PAUSE_S)
        state.commit()


def main() -> None:
    """Train together, then compare the weights with those that one process finds."""
    port, rank, size = map(int, sys.argv[1:])
    store = dist.TCPStore("127.0.0.1", port)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=60, enable_reconfigure=True)
    x, y, alone = drawn()
    state = dist.elastic.State(weights=alone.copy(), step=0)
    train(state, x, y, size)
    for _ in range(state.step):
        alone -= RATE / len(x) * slopes(alone, x, y)[:-1]
    if not np.allclose(state.weights, alone):
        raise SystemExit(f"rank {dist.get_rank()}: the weights are not those of one process: a step was lost")
    if dist.get_rank() == 0:
        print(f"right: {state.step} steps on {size} ranks, and one process finds the same weights", flush=True)
    dist.destroy_process_group()
    store.close()


if __name__ == "__main__":
    main()
