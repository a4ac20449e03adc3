"""Builds the extension; all else about this package stands in pyproject.toml.

Where it cannot be built, the package is installed without it, and with the reason in `not_built.txt`: `rankwise[gloo]`
brings this package along, and pip has no requirements that may fail. rankwise then does without, and `rankwise doctor`
tells the reason. Builds that must not end so, such as those of wheels for others, set RANKWISE_NATIVE_BUILD=required.
"""

import gzip
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import zlib
from glob import glob
from pathlib import Path

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

# No program asks which exceptions floats have raised, and loops that may raise some have no vectors.
FLAGS = ["-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math"]
# GCC sets and copies small structs by an instruction that takes as long to begin as a tenth of a call.
UNROLLED = "unrolled_loop:256:noalign,libcall:-1:noalign"
WHERE_KNOWN = [f"-mmemset-strategy={UNROLLED}", f"-mmemcpy-strategy={UNROLLED}"]


class BuildExtension(build_ext):
    """Records in a line why there is nothing to build with, or why the compiler gave up."""

    def build_extensions(self):
        reason = self.lacking()
        if not reason:
            try:
                if self.knows(WHERE_KNOWN):
                    self.extensions[0].extra_compile_args[:0] = WHERE_KNOWN
                super().build_extensions()
            except Exception as error:  # whatever the compiler and its driver raise
                reason = f"it could not be compiled: {error}"
        built = Path(self.get_ext_fullpath("rankwise_native._native"))
        editable = getattr(self, "editable_mode", False)
        record = Path("src", "rankwise_native", "not_built.txt") if editable else built.with_name("not_built.txt")
        record.unlink(missing_ok=True)
        if not reason:
            return
        if os.environ.get("RANKWISE_NATIVE_BUILD") == "required":
            raise SystemExit(f"\nrankwise-native cannot be built here: {reason}\n")
        print(f"rankwise-native is installed without its compiled parts: {reason}", file=sys.stderr)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(f"{reason}\n", encoding="utf-8")
        built.unlink(missing_ok=True)  # from a time when there was a compiler
        self.extensions.clear()  # there is nothing to copy to where an editable package looks for it

    def lacking(self):
        """Return what is missing to build with; nothing if all is there."""
        compiler = self.compiler.compiler_so[0]
        header = os.path.join(sysconfig.get_path("include"), "Python.h")
        if shutil.which(compiler) is None:
            return f"no C compiler: {compiler!r} was not found. Install one (gcc or clang), or name it in CC"
        if not os.path.exists(header):
            return f"no headers of Python: {header!r} was not found. Install them (python3-dev or python3-devel)"
        return ""

    def knows(self, options):
        """Tell whether the compiler takes options that not each has, or not for each processor."""
        tried = [*self.compiler.compiler_so, "-Werror", *options, "-E", "-x", "c", "-"]
        return subprocess.run(tried, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


class SourceArchive(sdist):
    """Writes the same bytes each time, where SOURCE_DATE_EPOCH says how old all files are."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):
        age = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))

        def ageless(member):
            member.mtime, member.mode = age, 0o755 if member.isdir() else 0o644
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            return member

        path = f"{base_name}.tar.gz"
        with gzip.GzipFile(path, "wb", mtime=age) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(base_dir, filter=ageless)
        return path


def sources():
    """Return what tells these sources from any others; rankwise_native compares it where they lie beside it."""
    told = 0
    for name in sorted(glob("csrc/*.[ch]")):
        told = zlib.crc32(Path(name).read_bytes(), told)
    return told


def nameless():
    """Return the options that keep the names of this machine's folders out of what the compiler writes."""
    folders = {os.getcwd(): ".", numpy.get_include(): "numpy"}
    return [f"-ffile-prefix-map={folder}={name}" for folder, name in folders.items()]


setup(
    cmdclass={"build_ext": BuildExtension, "sdist": SourceArchive},
    ext_modules=[
        Extension(
            "rankwise_native._native",
            sorted(glob("csrc/*.c")),
            include_dirs=[numpy.get_include()],
            define_macros=[("SOURCES", f"{sources()}u")],
            depends=sorted(glob("csrc/*.h")),
            # For scripts/native: warnings as errors, and builds with sanitizers.
            extra_compile_args=[*FLAGS, *nameless(), *os.environ.get("RANKWISE_CFLAGS", "").split()],
            extra_link_args=os.environ.get("RANKWISE_LDFLAGS", "").split(),
        )
    ],
)
