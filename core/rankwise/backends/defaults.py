"""Which backend serves a kind of device where the program does not say."""

from __future__ import annotations

from collections.abc import Mapping

from rankwise.backends.registry import registry
from rankwise.basics import entry_points
from rankwise.errors import BackendUnavailableError

__all__ = ["chosen", "default_backends"]

#: Entry points whose names are kinds of devices, and whose values are backends; nothing is imported for them.
_GROUP = "rankwise.defaults"


def default_backends(usual: Mapping[str, str]) -> dict[str, str]:
    """Return the usual backend of each kind of device, and that of others which one installed distribution names."""
    named: dict[str, list[str]] = {}
    for device, backend in entry_points.declared(_GROUP):
        named.setdefault(device, []).append(backend)
    return {**usual, **{d: names[0] for d, names in named.items() if len(names) == 1 and d not in usual}}


def chosen(usual: Mapping[str, str]) -> dict[str, str]:
    """Return the default backend of each kind of device, as far as it can run here.

    Raises:
        BackendUnavailableError: None can.
    """
    found = {device: name for device, name in default_backends(usual).items() if registry.availability(name)}
    found = {device: name for device, name in found.items() if device in registry.get(name).capabilities.devices}
    if found:
        return found
    others = [table.backend for table in registry.tables() if table.backend not in usual.values() and table.here()]
    if len(others) == 1:  # what is all there is must be meant
        return dict.fromkeys(registry.get(others[0]).capabilities.devices, others[0])
    reasons = [f"{device}: {registry.availability(name).reason}" for device, name in usual.items()]
    named = "".join(f"; {name!r} can, if init_process_group names it" for name in others)
    raise BackendUnavailableError(f"no default backend can run here: {'; '.join(reasons)}{named}")
