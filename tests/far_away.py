"""Lets gloo and shared arrays believe that only some ranks share a machine: several hosts without namespaces."""

from __future__ import annotations

import os
from importlib import import_module

#: The variable that says how many ranks take each other to be on one host; without it nothing is pretended.
RANKS_A_HOST = "RANKWISE_TESTS_RANKS_A_HOST"


def pretend() -> None:
    """Be on the host that the environment says, from the next group on."""
    ranks = int(os.environ.get(RANKS_A_HOST, "0"))
    if ranks:
        host = f"host-{int(os.environ['RANK']) // ranks}"
        vars(import_module("rankwise_gloo_tcp.setup.cards"))["machine"] = lambda: (host, host)
        vars(import_module("rankwise_arrays.shared.making"))["machine"] = lambda: host
