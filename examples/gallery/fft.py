"""A Fourier transform in two dimensions of what is divided by rows: rows, transpose, rows, transpose."""

import sys

import numpy as np

import rankwise as dist
from rankwise import functional


def fft2(image):
    """Return this rank's rows of the transform of an image, of which it takes its rows."""
    rows = dist.share(len(image))
    columns = functional.transpose(np.fft.fft(image[rows.start : rows.stop], axis=1))
    return functional.transpose(np.fft.fft(columns, axis=1))


if __name__ == "__main__":
    with dist.world(*sys.argv[1:]) as world:
        image = np.random.default_rng(4).random((30, 20))
        assert np.allclose(fft2(image), np.fft.fft2(image)[dist.share(30)])
        if world.rank() == 0:
            print("right: a transform of", image.shape)
