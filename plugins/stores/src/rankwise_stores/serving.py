"""The store of a job, for its launcher: what `TCPStore` serves itself by, and stores on servers."""

from __future__ import annotations

from rankwise_stores.server_schemes import is_served, opened
from rankwise_stores.server_urls import within
from rankwise_stores.tcp import server
from rankwise_stores.tcp.accepting import Listener
from rankwise_stores.tcp.guard import Keys, addresses_of
from rankwise_stores.tcp.pool import Pool
from rankwise_stores.urls import without_password

__all__ = [
    "Keys",
    "Listener",
    "Pool",
    "addresses_of",
    "is_served",
    "opened",
    "server",
    "within",
    "without_password",
]
