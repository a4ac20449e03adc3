"""Take away from a fresh interpreter on Linux what another system's Python does not have.

Names are deleted from the standard library before anything else has seen them, modules are not found any more, and
paths of Linux are not there. What remains is what code written for both may use.
"""

import builtins
import ctypes
import importlib.abc
import os
import platform
import sys

#: Where Linux tells what others do not tell in files.
_PATHS = ("/proc", "/sys", "/dev/shm")


def names(module, *lacking, prefixes=()):
    """Delete names from a module of the standard library; each must have been there."""
    for name in [*lacking, *(name for name in vars(module) if prefixes and name.startswith(prefixes))]:
        delattr(module, name)


def modules(*lacking):
    """Let modules not be found."""
    sys.meta_path.insert(0, _Blocker(lacking))
    for name in lacking:
        sys.modules.pop(name, None)


class _Blocker(importlib.abc.MetaPathFinder):
    def __init__(self, lacking):
        self.lacking = lacking

    def find_spec(self, name, path=None, target=None):
        if name in self.lacking:
            raise ModuleNotFoundError(f"No module named {name!r} on the system that is played here", name=name)
        return


def paths():
    """Let nothing be found under the folders that Linux alone has."""
    for module, name in (
        *((builtins, "open"), (os, "open"), (os, "stat"), (os, "lstat"), (os, "listdir"), (os, "scandir")),
        *((os, "readlink"), (os, "statvfs")),
    ):
        if hasattr(module, name):
            setattr(module, name, _closed(getattr(module, name)))
    import io

    io.open = builtins.open


def _closed(function):
    def guarded(path=".", *args, **kwargs):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(_PATHS):
            raise FileNotFoundError(2, "No such file or directory on the system that is played here", path)
        return function(path, *args, **kwargs)

    return guarded


def c_functions(*lacking, **own):
    """Let functions not be found in the C library, and others be; with none named, let no library be without a name."""
    real = ctypes.CDLL

    class Library(real):
        def __init__(self, name, *args, **kwargs):
            if name is None and not lacking:
                raise TypeError("argument must be a string: the system that is played here knows no nameless library")
            super().__init__(name, *args, **kwargs)

        def __getattr__(self, name):
            if name in lacking:
                raise AttributeError(f"function {name!r} not found")
            if name in own:
                return own[name]
            return super().__getattr__(name)

    ctypes.CDLL = Library


def call_it(name, release):
    """Have the system name itself as another."""
    platform.system = lambda: name
    platform.release = lambda: release
