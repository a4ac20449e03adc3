"""A world that ends with a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import rankwise as dist


@contextmanager
def world(backend: str | None = None, **options: Any) -> Iterator[dist.ProcessGroup]:
    """Make the default group, and destroy it at the end of the block.

    If the block raises, the group is aborted first, so that no rank waits for this one.

    Args:
        backend: What `init_process_group` takes.
        **options: Likewise.

    Yields:
        The default group.

    Examples:
        >>> with dist.world("gloo") as world:
        ...     world.rank(), world.size()
        (0, 1)
    """
    dist.init_process_group(backend, **options)
    try:
        group = dist.group.WORLD
        assert group is not None
        yield group
    except BaseException:
        with suppress(dist.DistError, ValueError):
            dist.abort_process_group()
        with suppress(dist.DistError, ValueError):
            dist.destroy_process_group()
        raise
    if dist.is_initialized():
        dist.destroy_process_group()
