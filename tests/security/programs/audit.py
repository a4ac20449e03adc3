"""A rank of a job under audit: it works, tells where it listens, and shows the secret to the test alone."""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
from typing import Any

import numpy as np

import rankwise as dist
from rankwise_network import secret


def listening() -> list[dict[str, Any]]:
    """Return where this process listens, and how."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptor = os.dup(int(name))
        except OSError:
            continue
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            continue
        with socket.socket(fileno=descriptor) as one:
            if one.type != socket.SOCK_STREAM or not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                continue
            where = one.getsockname()
            is_unix = one.family == socket.AF_UNIX
            shared = 0 if is_unix else one.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
            address = "unix" if is_unix else where[0]
            found.append({"address": address, "shares_port": bool(shared), "abstract": isinstance(where, bytes)})
    return found


dist.init_process_group("gloo", timeout=30)
array = np.ones(4)
dist.all_reduce(array)
group = dist.new_group([0, 1])
dist.all_reduce(array, group=group)
key = secret.load()
told = {"listening": listening(), "secret": None if key is None else bytes(key).hex()}
with open(os.path.join(sys.argv[1], f"rank{dist.get_rank()}.json"), "w") as file:
    json.dump(told, file)
print("ready", flush=True)
sys.stdin.readline()
if "fail" in sys.argv:
    try:
        raise RuntimeError(f"something is wrong with {key!r} and {key}")
    finally:
        dist.abort_process_group()
dist.destroy_process_group()
