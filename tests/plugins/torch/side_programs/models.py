"""DistributedDataParallel of models of many kinds: branches, recurrences, embeddings, tied and recomputed layers."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from side_programs.table import batch, each, mlp, programs, train


class Branches(nn.Module):
    """A model that uses another part of it on each rank and in each step."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.parts, self.step = nn.ModuleList(nn.Linear(8, 4) for _ in range(3)), 0

    def forward(self, inputs):
        self.step += 1
        return self.parts[(self.step + dist.get_rank()) % 3](inputs)


class _Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.part = nn.LSTM(8, 4, 2)

    def forward(self, inputs):
        return self.part(inputs)[0]


class _Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight

    def forward(self, inputs):
        return self.second(self.first(inputs))


class _Again(nn.Module):
    """A model that computes a part of it again on the way back."""

    def __init__(self, reentrant):
        super().__init__()
        self.part, self.reentrant = mlp(), reentrant

    def forward(self, inputs):
        from torch.utils.checkpoint import checkpoint

        return checkpoint(self.part, inputs.requires_grad_(), use_reentrant=self.reentrant)


def _frozen():
    model = mlp()
    model[0].requires_grad_(False)
    return model


def _complex():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 4, dtype=torch.complex64), _Modulus())


class _Modulus(nn.Module):
    def forward(self, inputs):
        return inputs.abs()


def _made(*layers):
    torch.manual_seed(1)
    return nn.Sequential(*(make() for make in layers))


_IMAGES = {"shape": (4, 3, 6, 6)}
_MODELS = {
    "branches": (Branches, {}, {"find_unused_parameters": True}),
    "recurrent": (_Recurrent, {"shape": (5, 2, 8)}, {}),
    "tied": (_Tied, {}, {}),
    "frozen": (_frozen, {}, {}),
    "complex": (_complex, {"dtype": torch.complex64}, {}),
    "recomputed": (lambda: _Again(False), {}, {}),
    "recomputed, reentrant": (lambda: _Again(True), {}, {"static_graph": True}),
    "convolution and batch norm": (
        lambda: _made(lambda: nn.Conv2d(3, 4, 3), lambda: nn.BatchNorm2d(4), nn.ReLU, nn.Flatten),
        _IMAGES,
        {},
    ),
    "channels last": (
        lambda: _made(lambda: nn.Conv2d(3, 4, 3), nn.ReLU).to(memory_format=torch.channels_last),
        _IMAGES,
        {},
    ),
    "attention": (
        lambda: _made(lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)),
        {"shape": (2, 5, 8)},
        {},
    ),
}


@programs("ddp, models", each(_MODELS))
def ddp_model(name):
    """Train models of other kinds, and note their buffers too."""
    make, inputs, options = _MODELS[name]
    shape = inputs.get("shape", (6, 8))
    model = DistributedDataParallel(make(), **options)
    dtype = inputs.get("dtype", torch.float32)
    return train(model, inputs=lambda step: batch(step, *shape, dtype=dtype)), list(model.buffers())


@programs("ddp, embeddings", {"sparse": {"sparse": True}, "dense": {"sparse": False}})
def ddp_embedding(sparse):
    """Train rows of a table, with gradients of some of them."""
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(20, 4, sparse=sparse), nn.Linear(4, 2)))
    rank = dist.get_rank()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return train(model, optimizer, inputs=lambda step: torch.arange(5) * (rank + step) % 20)
