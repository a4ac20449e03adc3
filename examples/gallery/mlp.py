"""A small network, trained by all ranks on data that is divided among them: gradients are summed."""

import sys

import numpy as np

import rankwise as dist
from rankwise import functional


def gradients(weights, x, y):
    """Return the gradients of the sum of squared errors."""
    hidden = np.tanh(x @ weights[0])
    error = hidden @ weights[1] - y
    return [x.T @ (error @ weights[1].T * (1 - hidden**2)), hidden.T @ error]


def trained(x, y, steps, total):
    """Return weights that fit, of gradients whose sums are made by a function of the parts."""
    random = np.random.default_rng(5)
    weights = [random.normal(0, 0.5, shape) for shape in ((x.shape[1], 16), (16, 1))]
    for _ in range(steps):
        for weight, gradient in zip(weights, gradients(weights, x, y), strict=True):
            weight -= 0.001 * total(gradient)
    return weights


def train(x, y, steps):
    """Return weights that fit all data, of which each rank takes its share."""
    rows = dist.share(len(x))
    return trained(x[rows.start : rows.stop], y[rows.start : rows.stop], steps, functional.all_reduce)


if __name__ == "__main__":
    with dist.world(*sys.argv[1:]) as world:
        x = np.random.default_rng(6).uniform(-1, 1, (300, 2))
        y = np.sin(2 * x.sum(1, keepdims=True))
        weights, alone = train(x, y, 200), trained(x, y, 200, lambda gradient: gradient)
        assert all(map(np.allclose, weights, alone))
        if world.rank() == 0:
            print("right: mean squared error", np.mean((np.tanh(x @ weights[0]) @ weights[1] - y) ** 2).round(3))
