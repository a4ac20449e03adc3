"""A message in each direction in one call."""

from __future__ import annotations

from functools import cache
from typing import Any

import rankwise as dist
from rankwise_arrays.kinds import Group, is_member

#: What sets messages of this package apart from the program's own, where there are tags.
_TAG = 0x5A5A5A


def sendrecv(
    send: Any, dst: int | None, recv: Any, src: int | None, group: Group = None, tag: int = 0, *, timeout: Any = None
) -> int:
    """Send an array and receive another in one call, so that ranks cannot wait for each other in a circle.

    Args:
        send: The array to send.
        dst: To whom, as a global rank; None sends nothing, as beyond the edge of a grid.
        recv: The array to fill.
        src: From whom, as a global rank; None receives nothing, and leaves `recv` as it is.
        group: The group; None is the default group.
        tag: A number that both ends of a message pass.
        timeout: How long it may take, in seconds or as a `timedelta`; None is the group's time-out.

    Returns:
        The sender's global rank, or -1 where nothing was to come.

    Raises:
        DistTimeoutError: It has taken too long.

    Examples:
        >>> left, right = (rank - 1) % 2, (rank + 1) % 2
        >>> came = np.empty(1, int)
        >>> dist.sendrecv(np.array([rank]), right, came, left)
        1
        >>> came
        array([1])
    """
    if not is_member(group):
        return -1
    going = None if dst is None else dist.isend(send, dst, group, tag)
    source = -1 if src is None else dist.recv(recv, src, group, tag, timeout=timeout)
    if going is not None:
        going.wait(timeout)
    return source


def tag_for(group: Group, number: int = 0) -> int:
    """Return a tag for messages of this package; 0 where a backend has none, and goes by their order."""
    return _TAG + number if _has_tags(dist.get_backend_config(group)) else 0


@cache
def _has_tags(config: str) -> bool:
    lanes = [pair.partition(":") for pair in config.split(",")]
    return all(dist.supports("tags", device, backend=backend) for device, _, backend in lanes)
