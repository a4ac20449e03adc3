"""Train with DDP on ranks that die and come back: rankwise run -n 4 --elastic --max-restarts 3 train.py

Two ranks kill themselves on the way. The launcher starts them again, and the other processes continue meanwhile. After
each change every rank wraps the model again, so DDP sends the parameters of rank 0, which has survived, to all.
"""

from __future__ import annotations

import os
import signal
import time

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector

import rankwise
import rankwise_torch

#: How many ranks there are, and how many steps they take together; fewer ranks take more in the meantime.
SIZE, STEPS, RATE = 4, 160, 0.15
#: After how many steps together which rank is shot.
SHOTS = {40: 1, 90: 2}
#: How long a step takes at least, as newcomers need some seconds to import torch; real steps take longer.
PAUSE_S = 0.05


def examples() -> tuple[torch.Tensor, torch.Tensor]:
    """Return places, and how high a wave is there."""
    x = torch.rand(300, 2, generator=torch.Generator().manual_seed(6)) * 2 - 1
    return x, torch.sin(2 * x.sum(1, keepdim=True))


def tell(epoch: rankwise.elastic.Epoch) -> None:
    """Let rank 0 print how many ranks there are."""
    if epoch.rank == 0:
        print(f"epoch {epoch.number}: {epoch.size} ranks", flush=True)


# --8<-- [start:train]
@rankwise.elastic.run(on_epoch=tell)
def train(state: rankwise.elastic.State, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """Take the steps that are left."""
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    mine = slice(rank, None, size)
    with rankwise_torch.errors_of_ranks():
        ddp = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(ddp.parameters(), RATE)
        while state.together < STEPS:
            optimizer.zero_grad()
            loss = ((ddp(x[mine]) - y[mine]) ** 2).mean()
            loss.backward()
            optimizer.step()
            state.step += 1
            state.together += size == SIZE
            if rank == 0 and state.step % 20 == 0:
                print(f"step {state.step}: loss {loss.item():.4f}", flush=True)
            time.sleep(PAUSE_S)
            state.commit()
            if size == SIZE and SHOTS.get(state.together) == rank:
                os.kill(os.getpid(), signal.SIGKILL)


# --8<-- [end:train]


def network() -> torch.nn.Module:
    """Return a network that knows nothing yet."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))


def alone(steps: int, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the parameters that one process finds in as many steps."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for _ in range(steps):
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
    return parameters_to_vector(model.parameters())


def main() -> None:
    """Train together, then compare the parameters with those that one process finds."""
    rankwise_torch.init_reconfigurable("gloo", timeout=60)
    model, (x, y) = network(), examples()
    values = {name.replace(".", "_"): value.detach().numpy() for name, value in model.named_parameters()}
    state = rankwise.elastic.State(step=0, together=0, **values)
    train(state, model, x, y)
    if not torch.allclose(parameters_to_vector(model.parameters()), alone(state.step, x, y), atol=1e-3):
        raise SystemExit("the parameters are not those of one process: a step was lost")
    if torch.distributed.get_rank() == 0:
        print(f"right: {state.step} steps, and one process finds the same parameters", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
