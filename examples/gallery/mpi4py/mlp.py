"""A small network, trained by all ranks on data that is divided among them: gradients are summed."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD


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


def added(gradient):
    """Return the sum of all ranks' gradients, in the place of this one's."""
    comm.Allreduce(MPI.IN_PLACE, gradient)
    return gradient


def train(x, y, steps):
    """Return weights that fit all data, of which each rank takes its share."""
    mine, wanted = (np.array_split(whole, comm.size)[comm.rank] for whole in (x, y))
    return trained(mine, wanted, steps, added)


if __name__ == "__main__":
    x = np.random.default_rng(6).uniform(-1, 1, (300, 2))
    y = np.sin(2 * x.sum(1, keepdims=True))
    weights, alone = train(x, y, 200), trained(x, y, 200, lambda gradient: gradient)
    assert all(map(np.allclose, weights, alone))
    if comm.rank == 0:
        print("right: mean squared error", np.mean((np.tanh(x @ weights[0]) @ weights[1] - y) ** 2).round(3))
