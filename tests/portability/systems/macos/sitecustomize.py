"""macOS, as far as its Python before 3.13 lacks what that of Linux has."""

import fcntl
import os
import select
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import lacking

lacking.names(
    os,
    *("sched_getaffinity", "sched_setaffinity", "memfd_create", "pidfd_open", "pipe2", "waitid", "getrandom"),
    *("P_PID", "P_PIDFD", "P_ALL", "P_PGID", "WEXITED", "WSTOPPED", "WNOWAIT", "CLD_EXITED", "O_PATH"),
    prefixes=("MFD_", "eventfd", "EFD_", "posix_fadvise", "splice", "copy_file_range", "getxattr", "listxattr"),
)
lacking.names(select, prefixes=("epoll", "EPOLL"))
lacking.names(signal, "sigwaitinfo", "sigtimedwait", "pidfd_send_signal", prefixes=("SIGRT",))
lacking.names(fcntl, prefixes=("F_OFD_", "F_SEAL", "F_ADD_SEALS", "F_GET_SEALS", "F_SETPIPE", "F_GETPIPE"))

import _socket

lacking.names(_socket, "SO_PEERCRED", "SO_PASSCRED", "TCP_QUICKACK", "TCP_USER_TIMEOUT", "MSG_CMSG_CLOEXEC")
import socket


class Socket(socket.socket):
    """A socket of a system without abstract names."""

    def bind(self, address):
        if self.family == socket.AF_UNIX and address[:1] in ("\0", b"\0"):
            raise OSError(22, "Invalid argument: no abstract names on the system that is played here")
        super().bind(address)


socket.socket = Socket


def sysctlbyname(name, value, size, new, new_size):
    """Tell of this start of the machine, as macOS does."""
    assert name == b"kern.bootsessionuuid"
    value.value = b"A2F7B4E2-6D0E-4B43-9F44-0A1D5C0B7C11"
    return 0


lacking.c_functions("prctl", "process_vm_readv", "syscall", "futex", sysctlbyname=sysctlbyname)
lacking.call_it("Darwin", "22.6.0")
lacking.paths()

# What asks for the platform by this name has asked by now, or asks in a way that is right here.
import multiprocessing.context  # noqa: F401
import subprocess  # noqa: F401
import sysconfig  # noqa: F401
import urllib.request  # noqa: F401

sys.platform = "darwin"
