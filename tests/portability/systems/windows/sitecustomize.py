"""Windows, as far as its Python lacks what that of Linux has: enough to import, and to run ranks as threads."""

import os
import select
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import lacking

# They have looked for what is taken away, and go on with what they have found; the last four are not ours to test.
import selectors
import stat
import subprocess  # noqa: F401
import tempfile  # noqa: F401

import msgpack  # noqa: F401
import numpy  # noqa: F401
import pluggy  # noqa: F401
import zmq  # noqa: F401

lacking.modules("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog", "readline")
lacking.names(
    os,
    *("fork", "forkpty", "register_at_fork", "geteuid", "getuid", "getgid", "getegid", "getpgid", "getpgrp", "setsid"),
    *("killpg", "pread", "pwrite", "set_blocking", "get_blocking", "spawnvp"),
    *("memfd_create", "pidfd_open", "pipe2", "waitid", "statvfs", "mkfifo", "uname", "getloadavg", "fchmod", "fchown"),
    *("O_CLOEXEC", "O_NONBLOCK", "O_NOFOLLOW", "O_DIRECTORY", "WNOHANG", "writev", "readv", "sysconf", "nice"),
    prefixes=("MFD_", "eventfd", "EFD_", "posix_", "sched_"),
)
lacking.names(
    signal,
    *("pthread_sigmask", "sigwait", "sigwaitinfo", "sigtimedwait", "pthread_kill", "setitimer", "alarm"),
)
_HAS = ("SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM")
lacking.names(signal, *[name for name in signal.Signals.__members__ if name not in _HAS and hasattr(signal, name)])
from enum import IntEnum

signal.Signals = IntEnum("Signals", {name: int(getattr(signal, name)) for name in _HAS})

lacking.names(select, "poll", prefixes=("epoll", "EPOLL", "POLL"))
_select = select.select


def only_sockets(*descriptors):
    """Wait as `select` of Windows does, which knows nothing but sockets."""
    for one in [one for some in descriptors[:3] for one in some]:
        if not stat.S_ISSOCK(os.fstat(one if isinstance(one, int) else one.fileno()).st_mode):
            raise OSError(10038, "An operation was attempted on something that is not a socket")
    return _select(*descriptors)


select.select = only_sockets
selectors.DefaultSelector = selectors.SelectSelector
selectors.SelectSelector._select = staticmethod(only_sockets)

import _socket

lacking.names(_socket, "AF_UNIX", "socketpair", "SO_PEERCRED", "SO_REUSEPORT", "MSG_DONTWAIT", "MSG_NOSIGNAL")
import socket


class Absent:
    """Stands for a method that is not there."""

    def __get__(self, instance, owner=None):
        raise AttributeError("not on the system that is played here")


socket.socket.sendmsg = socket.socket.recvmsg_into = socket.socket.recvmsg = Absent()
lacking.c_functions()
lacking.call_it("Windows", "11")
lacking.paths()
