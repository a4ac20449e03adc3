"""Looking at a running job: what has been counted, and through what others can see it.

`start` is called once the default group is there; nothing here is on the path of a call.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankwise.observing import entry_points

if TYPE_CHECKING:
    from rankwise.observing import World

#: Names the first port of a host at which ranks serve what they have counted, each at its own; 0: any that is free.
PORT = "RANKWISE_METRICS_PORT"
#: The entry points of what hands figures on: the key is what it hands them to, the value a module with `serve(port)`.
EXPORTERS = "rankwise.exporters"


def start(world: World) -> None:
    """Let others look at this rank, and begin to count if the environment asks for it."""
    if world.watcher is not None:
        from rankwise_watch.window import open_window

        open_window(world)
    if os.environ.get(PORT) and world.home is None:  # whose page has the groups outside of it too
        try:
            serve_prometheus()
        except (OSError, ModuleNotFoundError) as error:  # a job must not end for lack of a port
            import logging

            logging.getLogger("rankwise").warning("the figures of this rank are not served: %s", error)
    elif world.is_read or os.environ.get("RANKWISE_STATS", "off").strip().lower() not in ("", "off", "0"):
        world.recorder.count()


def serve_prometheus(port: int | None = None) -> int:
    """Serve this process's figures to Prometheus, at a loopback address, until the process ends.

    Args:
        port: The port; 0 takes any that is free; None that of `RANKWISE_METRICS_PORT`, plus the local rank unless it
            is 0.

    Returns:
        The port.

    Raises:
        ValueError: There is no such port.
        OSError: It is taken.
        ModuleNotFoundError: `rankwise-tools`, which brings the server, is not installed.
    """
    return int(_exporter("prometheus").serve(port))


def _exporter(name: str) -> Any:
    """Import the exporter of a name."""
    found = entry_points.named(EXPORTERS, name)
    if not found:
        raise ModuleNotFoundError(f"there is no exporter {name!r} here: pip install rankwise-tools")
    return import_module(next(iter(found)))
