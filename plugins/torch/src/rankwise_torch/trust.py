"""The job secret, handed out in torch's store where nobody has brought one.

rankwise makes no connection between hosts without a secret that all processes of the job know, and torch's launchers
bring none. So the first to come makes one and leaves it in the store. torch's store asks nobody who they are: a process
that can reach it can read the secret, as they could read and change all else that is in it. `SECURITY.md` says what
that means, and how to bring a secret in a better way.
"""

from __future__ import annotations

from torch.distributed import Store, TCPStore

from rankwise_network import secret

_KEY = "rankwise/secret"
_shared: secret.Secret | None = None


def share(store: Store) -> None:
    """Have all who meet in a store between hosts know one secret, unless this process was given one."""
    global _shared
    if secret.load() not in (None, _shared):
        return
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if not isinstance(store, TCPStore):
        return  # for one host, where nothing needs a secret; other users might read the file
    found = store.compare_set(_KEY, "", secret.new().hex())
    _shared = secret.Secret(bytes.fromhex(found.decode()))
    secret.use(_shared)
