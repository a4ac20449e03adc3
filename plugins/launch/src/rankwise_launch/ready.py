"""What `--preload rankwise` imports besides: all that a first group loads, which `import rankwise` leaves for later.

Backends load what they say that they need (`BackendSpec.load`); one that says nothing is loaded by each rank.
"""

from contextlib import suppress
from importlib import import_module

from rankwise.launching import ENTRY_POINT_GROUP, declared, load_scheme, observers, registry

#: None makes a context of ZeroMQ, and so a thread.
_MODULES = (
    "encodings.idna",
    "msgpack",
    "pluggy",
    "rankwise.backends.hookspecs",
    "rankwise.groups.lifecycle",
    "rankwise_watch.window",
    "rankwise.store.patience",
    "rankwise_stores.tcp.accepting",
    "rankwise_stores.tcp.pool",
    "rankwise_stores.tcp.server",
    "rankwise_watch.dump",
    "rankwise_watch.watcher",
    "zmq.utils.z85",
)

for _name in _MODULES:
    import_module(_name)

observers.find()
for _scheme in ("env", "launcher"):
    load_scheme(_scheme)
for _name, _ in declared(ENTRY_POINT_GROUP):
    with suppress(Exception):  # what is wrong with a plugin, those who ask for it will hear
        registry.load(_name)
        registry.terms(_name)
