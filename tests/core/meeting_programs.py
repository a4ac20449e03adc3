"""What ranks do in `test_who_meets.py`: each brings a backend of the same name, and they begin a world with it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import rankwise as dist
from rankwise.backends import API_VERSION, BackendSpec, Capabilities
from rankwise.kits import registry
from rankwise_local.communicator import CAPABILITIES, LocalCommunicator

#: A plugin in one module, as a distribution brings it.
PLUGIN = """
from rankwise.backends import BackendSpec, hookimpl
from rankwise_local.communicator import CAPABILITIES, LocalCommunicator
from dataclasses import replace

@hookimpl
def rankwise_backend():
    table = replace(CAPABILITIES, backend="acme")
    return BackendSpec("acme", 1, table, LocalCommunicator, core={core!r}, meets={meets!r})
"""


def begin_installed(folder: str, versions: list[str], meets: list[str], core: str = "") -> str:
    """Install this rank's version of a distribution, and return why no world begins, or that one does."""
    rank = _rank()
    site = Path(folder) / str(rank)
    info = site / f"rankwise_acme-{versions[rank]}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: rankwise-acme\nVersion: {versions[rank]}\n")
    (info / "entry_points.txt").write_text("[rankwise.backends]\nacme = acme_plugin\n")
    (site / "acme_plugin.py").write_text(PLUGIN.format(meets=meets[rank], core=core))
    sys.path.insert(0, str(site))
    return _begin()


def begin_registered(differs: str) -> str:
    """Register a backend whose declaration differs from the other rank's in one thing; return what comes of it."""
    table = replace(CAPABILITIES, backend="acme")
    if differs == "table" and _rank():
        device = table.devices["cpu"]
        table = Capabilities("acme", {"cpu": replace(device, ops={**device.ops, "send": device.ops["all_reduce"]})})
    version = (1, 1) if differs == "contract" and _rank() else API_VERSION
    registry.register(BackendSpec("acme", version, table, LocalCommunicator))
    return _begin()


def _rank() -> int:
    from rankwise_network.launcher_env import from_environment

    return from_environment().rank


def _begin() -> str:
    try:
        dist.init_process_group("acme")
    except dist.RendezvousError as error:
        return str(error)
    dist.destroy_process_group()
    return ""
