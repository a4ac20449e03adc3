"""What `--preload rankwise` imports besides: all that a first group loads, which `import rankwise` leaves for later.

A backend's package may have a module `ready` that does the same for it. A backend without one is loaded by each rank.
"""

from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec

from rankwise.backends.discovery import ENTRY_POINT_GROUP, declared

__all__: list[str] = []

#: None makes a context of ZeroMQ, and so a thread.
_MODULES = (
    "encodings.idna",
    "msgpack",
    "pluggy",
    "rankwise.backends.hookspecs",
    "rankwise.groups.lifecycle",
    "rankwise.metrics.window",
    "rankwise.store.patience",
    "rankwise.store.tcp.listening",
    "rankwise.store.tcp.pool",
    "rankwise.store.tcp.server",
    "rankwise.watch.dump",
    "rankwise.watch.watcher",
    "zmq.utils.z85",
)

for _name in _MODULES:
    import_module(_name)

for _package in sorted({value.partition(":")[0].partition(".")[0] for _, value in declared(ENTRY_POINT_GROUP)}):
    _spec = None
    with suppress(Exception):  # what is wrong with a plugin, those who ask for it will hear
        _spec = find_spec(f"{_package}.ready")
    if _spec is not None:
        import_module(f"{_package}.ready")
