"""The table of programs, and what they share: small models, and a way to note what a call refuses."""

import builtins
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn


class Program(NamedTuple):
    """A program, and on how many ranks it runs."""

    call: Callable[[], Any]
    size: int


PROGRAMS: dict[str, Program] = {}


def programs(kind, cases, size=2):
    """Register a function as one program for each case, whose arguments the case names."""

    def register(function):
        for name, arguments in cases.items():
            whole = f"{kind}: {name}"
            assert whole not in PROGRAMS, whole
            PROGRAMS[whole] = Program(lambda given=arguments: function(**given), size)
        return function

    return register


def each(names, argument="name"):
    """Return the cases of a function that one argument tells apart."""
    return {name: {argument: name} for name in names}


def folder():
    """Return the folder that the ranks of this run share."""
    return os.environ["SIDE_FOLDER"]


def refusal(call):
    """Return what a program has to catch where a call is refused; fail where it is not."""
    try:
        call()
    except Exception as error:
        return next(kind.__name__ for kind in type(error).__mro__ if hasattr(builtins, kind.__name__))
    raise AssertionError("it was not refused")


def numbers(*shape, dtype=torch.float32):
    """Return a tensor of small whole numbers that tell ranks and places apart."""
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 7 + 1 + 3 * dist.get_rank()).view(shape).to(dtype)


def mlp(*, dtype=torch.float32, seed=1):
    """Return a model of three layers."""
    torch.manual_seed(seed)
    layers = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)
    return nn.Sequential(*layers).to(dtype)


def batch(step, *shape, dtype=torch.float32):
    """Return what this rank trains on in a step."""
    made = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    return torch.randn(*(shape or (6, 8)), generator=made).to(dtype)


def train(model, optimizer=None, steps=3, inputs=batch, forward=None, end=None, **options):
    """Train a model, and return its losses and what its parameters are then."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = (forward or model)(inputs(step, **options)).float().square().mean()
        loss.backward()
        if end is not None:
            end(model)
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.detach() for parameter in model.parameters()]
