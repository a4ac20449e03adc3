"""Builds the extension; all else about this package stands in pyproject.toml."""

import os
from glob import glob

import numpy
from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "rankwise_native._native",
            sorted(glob("csrc/*.c")),
            include_dirs=[numpy.get_include()],
            depends=sorted(glob("csrc/*.h")),
            # For scripts/native: warnings as errors, and builds with sanitizers.
            extra_compile_args=["-std=c11", "-O3", "-fno-math-errno", *os.environ.get("RANKWISE_CFLAGS", "").split()],
            extra_link_args=os.environ.get("RANKWISE_LDFLAGS", "").split(),
        )
    ],
)
