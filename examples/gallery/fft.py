"""A Fourier transform in two dimensions of what is divided by rows: rows, transpose, rows, transpose."""

import sys

import numpy as np

import rankwise as dist
from rankwise import functional

with dist.world(*sys.argv[1:]) as world:
    image = np.random.default_rng(4).random((30, 20))
    rows = dist.share(30)
    mine = np.fft.fft(image[rows.start : rows.stop], axis=1)
    mine = functional.transpose(np.fft.fft(functional.transpose(mine), axis=1))
    assert np.allclose(mine, np.fft.fft2(image)[rows.start : rows.stop])
    if world.rank() == 0:
        print("right: a transform of", image.shape)
