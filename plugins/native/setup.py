"""Builds the extension; all else about this package stands in pyproject.toml."""

import os
import shutil
import sysconfig
from glob import glob

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class BuildExtension(build_ext):
    """Says in a line what is missing, before the compiler's absence is a traceback."""

    def build_extensions(self):
        compiler = self.compiler.compiler_so[0]
        header = os.path.join(sysconfig.get_path("include"), "Python.h")
        if shutil.which(compiler) is None:
            missing = f"no C compiler: {compiler!r} was not found. Install one (gcc or clang), or name it in CC"
        elif not os.path.exists(header):
            missing = f"no headers of Python: {header!r} was not found. Install them (python3-dev or python3-devel)"
        else:
            return super().build_extensions()
        raise SystemExit(
            f"\nrankwise-native is built from source here, and there is {missing}.\n"
            "rankwise does everything without this package too, only slower.\n"
        )


setup(
    cmdclass={"build_ext": BuildExtension},
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
