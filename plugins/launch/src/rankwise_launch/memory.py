"""What this machine allows for moving memory between processes; tried out, not guessed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from rankwise_launch.text import format_nbytes

#: Whether it works, what was found, what would help.
Found = tuple[bool, str, str]

_PATIENCE_S = 20.0
#: Offers some bytes to any process of the same user, and ends when its input does.
_OWNER = """
import ctypes, os, sys
buffer = ctypes.create_string_buffer(b"rankwise")
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
print(os.getpid(), ctypes.addressof(buffer), flush=True)
sys.stdin.read()
"""
_READER = """
import ctypes, os, sys
class Piece(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("nbytes", ctypes.c_size_t)]
libc, buffer = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(8)
mine, theirs = Piece(ctypes.addressof(buffer), 8), Piece(int(sys.argv[2]), 8)
got = libc.process_vm_readv(int(sys.argv[1]), ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
sys.exit(0 if buffer.raw == b"rankwise" else os.strerror(ctypes.get_errno()))
"""


def segments() -> Found:
    """Try to make a sealed memory segment."""
    if not hasattr(os, "memfd_create"):
        return False, "this system has no memory segments without a name (memfd); ranks of one host will use TCP", ""
    import fcntl

    try:
        # opens: nothing, it is closed at once
        descriptor = os.memfd_create("rankwise-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        return False, f"memfd_create: {error.strerror}; ranks of one host will use sockets", ""
    try:
        os.ftruncate(descriptor, 4096)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError as error:
        return False, f"sealing a memory segment: {error.strerror}", ""
    finally:
        os.close(descriptor)
    return True, "sealed memory segments (memfd) work", ""


def direct_reads() -> Found:
    """Let one process read the memory of its sibling."""
    if platform.system() != "Linux":
        return False, "process_vm_readv: this system has none", ""
    command = [sys.executable, "-I", "-S", "-c"]
    with subprocess.Popen([*command, _OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        try:
            words = owner.stdout.readline().split()
            reader = subprocess.run(
                [*command, _READER, *words], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
            )
            problem = "" if reader.returncode == 0 else reader.stderr.strip() or f"exit code {reader.returncode}"
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        finally:
            owner.stdin.close()
    if not problem:
        return True, "process_vm_readv works: large arrays can be read straight from a peer's memory", ""
    scope = _read("/proc/sys/kernel/yama/ptrace_scope")
    because = f" (kernel.yama.ptrace_scope is {scope})" if scope not in ("", "0") else ""
    remedy = "in a container, allow SYS_PTRACE; without it everything works, with one more copy"
    return False, f"process_vm_readv: {problem.splitlines()[-1]}{because}", remedy


def shm_folder() -> Found:
    """Look how large /dev/shm is: the library behind a backend may need it, rankwise's own does not."""
    if not os.path.isdir("/dev/shm"):
        return False, "/dev/shm: this system has none", ""
    try:
        status = os.statvfs("/dev/shm")
    except OSError as error:
        return False, f"/dev/shm: {error.strerror}; some MPI libraries and NCCL need it", ""
    size = status.f_frsize * status.f_blocks
    text = f"/dev/shm holds {format_nbytes(size)}"
    if size < 1 << 28:
        return False, f"{text}, which is little for some MPI libraries and NCCL", "docker run --shm-size=1g"
    return True, text, ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
