"""A store that a launcher serves, for its job: what `TCPStore` serves itself by."""

from __future__ import annotations

from rankwise_stores.tcp import server
from rankwise_stores.tcp.accepting import Listener
from rankwise_stores.tcp.guard import Keys, addresses_of
from rankwise_stores.tcp.pool import Pool

__all__ = [
    "Keys",
    "Listener",
    "Pool",
    "addresses_of",
    "server",
]
