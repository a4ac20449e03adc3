"""Python objects through the collectives, by the safe codec of `rankwise.codec`.

With `pickle=True` on all ranks any object can be sent, and every sender can run code in this process. Without it
nothing is unpickled, and an object of a type that the codec does not know raises a `TypeError` before anything is sent.
"""

from __future__ import annotations

import pickle as pickle_module
from collections.abc import Sequence
from threading import get_ident
from typing import Any

import numpy as np

from rankwise.basics.arguments import require
from rankwise.basics.arrays import Array
from rankwise.basics.devices import device_kind_named, placed, to_host
from rankwise.calls.calling import Composed
from rankwise.calls.collectives import broadcast, gather, scatter
from rankwise.calls.exchanges import all_gather
from rankwise.calls.p2p import recv, send
from rankwise.codec import DecodeError, decode, encode
from rankwise.codec import register_dataclass as register_dataclass
from rankwise.errors import CodecError, UnsupportedOperationError
from rankwise.groups.process_group import GroupLike, ProcessGroup
from rankwise.groups.ranks import group_rank
from rankwise.groups.world import resolve

#: What a pickle begins with, and nothing that the codec has made.
_PICKLE_MARK = 0x80
#: Longest object; what is announced as longer is not believed.
_MAX_NBYTES = 1 << 36


def all_gather_object(object_list: list[Any], obj: Any, group: GroupLike = None, *, pickle: bool = False) -> None:
    """Put rank i's object into `object_list[i]` of every rank.

    The objects may be of any types that the codec knows (see `rankwise.codec`), and may differ between ranks.

    Args:
        object_list: The list to fill, with one entry for each rank of the group.
        obj: What this rank contributes.
        group: The group; None is the default group.
        pickle: Send any object, as a pickle; all ranks must pass it.

    Raises:
        TypeError: The codec does not know the object's type.
        ValueError: The list has the wrong length.
        CodecError: The received bytes cannot be decoded, or are a pickle without `pickle=True` here.

    Examples:
        >>> names = [None, None]
        >>> dist.all_gather_object(names, {"rank": rank})
        >>> names
        [{'rank': 0}, {'rank': 1}]
    """
    with Composed() as call:
        if (pg := _group(group, "all_gather_object")) is None:
            return
        require(object_list=object_list, pickle=pickle)
        _sized(pg, "all_gather_object", "object_list", object_list)
        mine = _pack(pg, obj, pickle)
        call.begun_on = pg
        lengths = _lengths(pg, mine)
        parts, mine = _rooms(pg, "all_gather", lengths, mine)
        all_gather(parts, mine, pg)
        object_list[:] = _unpacked(pg, parts, lengths, pickle)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: GroupLike = None,
    group_dst: int | None = None,
    *,
    pickle: bool = False,
) -> None:
    """Put rank i's object into `object_gather_list[i]` of the destination, global rank 0 unless told otherwise.

    Args:
        obj: What this rank contributes.
        object_gather_list: At the destination, the list to fill, with one entry for each rank; elsewhere None.
        dst: The destination, as a global rank.
        group: The group; None is the default group.
        group_dst: The destination as a rank in the group, instead of `dst`.
        pickle: Send any object, as a pickle; all ranks must pass it.

    Raises:
        TypeError: The codec does not know the object's type.
        ValueError: The list is missing at the destination, given elsewhere, or of the wrong length.
        CodecError: The received bytes cannot be decoded, or are a pickle without `pickle=True` here.

    Examples:
        >>> found = [None, None] if rank == 0 else None
        >>> dist.gather_object(f"from {rank}", found)
        >>> found
        ['from 0', 'from 1']
    """
    with Composed() as call:
        if (pg := _group(group, "gather_object")) is None:
            return
        root = group_rank(pg, "dst", 0 if dst is None and group_dst is None else dst, group_dst)
        require(object_gather_list=object_gather_list, pickle=pickle)
        _root_objects(pg, "gather_object", "object_gather_list", object_gather_list, root)
        mine = _pack(pg, obj, pickle)
        call.begun_on = pg
        lengths = _lengths(pg, mine)
        parts, mine = _rooms(pg, "gather", lengths, mine, pg.rank() == root)
        gather(mine, parts or None, group=pg, group_dst=root)
        if object_gather_list is not None and pg.rank() == root:
            object_gather_list[:] = _unpacked(pg, parts, lengths, pickle)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: GroupLike = None,
    device: Any = None,
    group_src: int | None = None,
    *,
    pickle: bool = False,
) -> None:
    """Replace the objects of every rank's list by those of the source.

    Args:
        object_list: The objects to send, or the list to fill; of one length on all ranks.
        src: The source, as a global rank.
        group: The group; None is the default group.
        device: Accepted as in torch, and ignored.
        group_src: The source as a rank in the group, instead of `src`.
        pickle: Send any object, as a pickle; all ranks must pass it.

    Raises:
        TypeError: The codec does not know an object's type.
        ValueError: The lists differ in length, or not exactly one source is given.
        CodecError: The received bytes cannot be decoded, or are a pickle without `pickle=True` here.

    Examples:
        >>> objects = ["config", {"seed": 7}] if rank == 1 else [None, None]
        >>> dist.broadcast_object_list(objects, src=1)
        >>> objects
        ['config', {'seed': 7}]
    """
    with Composed() as call:
        if (pg := _group(group, "broadcast_object_list")) is None:
            return
        require(object_list=object_list, pickle=pickle)
        root = group_rank(pg, "src", src, group_src)
        mine = _pack(pg, object_list, pickle) if pg.rank() == root else None
        call.begun_on = pg
        length = _numbers(pg, 0 if mine is None else mine.size)
        broadcast(length, group=pg, group_src=root)
        data = mine if mine is not None else _room(pg, *_values(length))
        broadcast(data, group=pg, group_src=root)
        if mine is None:
            _fill(pg, "broadcast_object_list", object_list, _unpack(data, pickle, pg.ranks[root]))


def scatter_object_list(
    scatter_object_output_list: Any,
    scatter_object_input_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: GroupLike = None,
    group_src: int | None = None,
    *,
    pickle: bool = False,
) -> None:
    """Put the i-th object of the source, global rank 0 by default, into the first entry of rank i's list.

    Args:
        scatter_object_output_list: A list, whose first entry is replaced.
        scatter_object_input_list: At the source, one object for each rank of the group; elsewhere None.
        src: The source, as a global rank.
        group: The group; None is the default group.
        group_src: The source as a rank in the group, instead of `src`.
        pickle: Send any object, as a pickle; all ranks must pass it.

    Raises:
        TypeError: The codec does not know an object's type.
        ValueError: The input list is missing at the source, given elsewhere, or of the wrong length; or the output list
            is empty.
        CodecError: The received bytes cannot be decoded, or are a pickle without `pickle=True` here.

    Examples:
        >>> mine = [None]
        >>> parts = [{"part": 0}, {"part": 1}] if rank == 0 else None
        >>> dist.scatter_object_list(mine, parts)
        >>> mine
        [{'part': 0}]
    """
    with Composed() as call:
        if (pg := _group(group, "scatter_object_list")) is None:
            return
        root = group_rank(pg, "src", 0 if src is None and group_src is None else src, group_src)
        require(
            scatter_object_output_list=scatter_object_output_list,
            scatter_object_input_list=scatter_object_input_list,
            pickle=pickle,
        )
        if not scatter_object_output_list:
            raise ValueError("scatter_object_output_list must have an entry, which is replaced")
        _root_objects(pg, "scatter_object_list", "scatter_object_input_list", scatter_object_input_list, root)
        parts = None
        if pg.rank() == root and scatter_object_input_list is not None:
            parts = [_pack(pg, obj, pickle) for obj in scatter_object_input_list]
        call.begun_on = pg
        lengths, numbers = None, _numbers(pg, 0, 0)
        if parts is not None:
            most = max(part.size for part in parts)
            lengths = [_numbers(pg, part.size, most) for part in parts]
        scatter(numbers, lengths, group=pg, group_src=root)
        length, most = _values(numbers)
        if not _takes_uneven(pg, "scatter"):
            parts = None if parts is None else [_padded(pg, part, most) for part in parts]
        else:
            most = length
        data = _room(pg, most)
        scatter(data, parts, group=pg, group_src=root)
        scatter_object_output_list[0] = _unpack(data[:length], pickle, pg.ranks[root])


def send_object_list(
    object_list: Sequence[Any],
    dst: int | None = None,
    group: GroupLike = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
    *,
    pickle: bool = False,
) -> None:
    """Send a list of objects.

    Args:
        object_list: The objects.
        dst: The destination, as a global rank.
        group: The group; None is the default group.
        device: Accepted as in torch, and ignored.
        group_dst: The destination as a rank in the group, instead of `dst`.
        use_batch: Accepted as in torch, and ignored.
        pickle: Send any object, as a pickle; the receiver must pass it too.

    Raises:
        TypeError: The codec does not know an object's type.
        ValueError: Not exactly one destination is given, or it is this rank itself.

    Examples:
        >>> if rank == 0:
        ...     dist.send_object_list(["a", 1], dst=1)
        ... else:
        ...     sender = dist.recv_object_list([None, None], src=0)
    """
    with Composed() as call:
        if (pg := _group(group, "send_object_list")) is None:
            return
        require(object_list=object_list, pickle=pickle)
        data = _pack(pg, object_list, pickle)
        call.begun_on = pg
        send(_numbers(pg, data.size), dst, pg, group_dst=group_dst)
        send(data, dst, pg, group_dst=group_dst)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: GroupLike = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
    *,
    pickle: bool = False,
) -> int:
    """Receive a list of objects, from any rank if no source is given.

    Args:
        object_list: The list to fill, as long as the sender's.
        src: The source, as a global rank; None, if `group_src` is None too, for any rank.
        group: The group; None is the default group.
        device: Accepted as in torch, and ignored.
        group_src: The source as a rank in the group, instead of `src`.
        use_batch: Accepted as in torch, and ignored.
        pickle: Accept any object, as a pickle; the sender must pass it too.

    Returns:
        The sender's global rank, or -1 on a rank that is not in the group.

    Raises:
        ValueError: The lists differ in length.
        CodecError: The received bytes cannot be decoded, or are a pickle without `pickle=True` here.

    Examples:
        >>> objects = [None, None]
        >>> if rank == 0:
        ...     print("from", dist.recv_object_list(objects), objects)
        ... else:
        ...     dist.send_object_list(["a", 1], dst=0)
        from 1 ['a', 1]
    """
    with Composed() as call:
        if (pg := _group(group, "recv_object_list")) is None:
            return -1
        require(object_list=object_list, pickle=pickle)
        call.begun_on = pg
        length = _numbers(pg, 0)
        sender = recv(length, src, pg, group_src=group_src)
        data = _room(pg, *_values(length))
        recv(data, sender, pg)
        _fill(pg, "recv_object_list", object_list, _unpack(data, pickle, sender))
        return sender


def _group(group: GroupLike, op: str) -> ProcessGroup | None:
    pg = resolve(group, op)
    if pg is not None and get_ident() in pg.collected:
        raise RuntimeError(f"{op}: object collectives cannot be coalesced; they need the lengths first")
    if pg is not None:
        pg.require_call(op, _device(pg))
    return pg


def _pack(pg: ProcessGroup, obj: Any, pickle: bool) -> Array:
    return _on_device(pg, np.frombuffer(pickle_module.dumps(obj) if pickle else encode(obj), np.uint8))


def _unpack(data: Array, pickle: bool, sender: int) -> Any:
    raw = memoryview(to_host(data))
    if len(raw) == 0 or raw[0] != _PICKLE_MARK:
        try:
            return decode(raw)
        except DecodeError as error:
            raise CodecError(f"the object that rank {sender} has sent cannot be decoded: {error}") from error
    if not pickle:
        raise CodecError(f"rank {sender} has sent a pickle; nothing is unpickled unless all ranks pass pickle=True")
    try:
        return pickle_module.loads(raw)
    except Exception as error:  # of whatever class the pickle is about
        raise CodecError(f"the pickle that rank {sender} has sent cannot be read: {error!r}") from error


def _lengths(pg: ProcessGroup, mine: Array) -> list[int]:
    parts = [_numbers(pg, 0) for _ in range(pg.size())]
    all_gather(parts, _numbers(pg, mine.size), pg)
    return [length for part in parts for length in _values(part)]


def _rooms(
    pg: ProcessGroup, op: str, lengths: list[int], mine: Array, receives: bool = True
) -> tuple[list[Array], Array]:
    """Return room for what all ranks send, and what this one does; all of one size where a backend wants that."""
    if not _takes_uneven(pg, op):
        mine = _padded(pg, mine, max(lengths))
        return [_room(pg, max(lengths)) for _ in lengths] if receives else [], mine
    return [_room(pg, length) for length in lengths] if receives else [], mine


def _takes_uneven(pg: ProcessGroup, op: str) -> bool:
    """Tell whether the backend of the group's objects takes parts that differ in size."""
    try:
        pg.require_feature("uneven", _device(pg), op)
    except UnsupportedOperationError:
        return False
    return True


def _padded(pg: ProcessGroup, array: Array, nbytes: int) -> Array:
    padded = np.zeros(nbytes, np.uint8)
    padded[: array.size] = to_host(array)
    return _on_device(pg, padded)


def _unpacked(pg: ProcessGroup, parts: list[Array], lengths: list[int], pickle: bool) -> list[Any]:
    sent = zip(parts, lengths, pg.ranks, strict=True)
    return [_unpack(part[:length], pickle, rank) for part, length, rank in sent]


def _numbers(pg: ProcessGroup, *values: int) -> Array:
    """Return numbers as bytes, which is all that a backend must take for objects."""
    return _on_device(pg, np.array(values, "<i8").view(np.uint8))


def _values(numbers: Array) -> list[int]:
    return [int(value) for value in to_host(numbers).view("<i8")]


def _room(pg: ProcessGroup, nbytes: int) -> Array:
    if not 0 <= nbytes <= _MAX_NBYTES:
        raise CodecError(f"the sender announces an object of {nbytes} bytes; the most is {_MAX_NBYTES}")
    return _on_device(pg, np.empty(nbytes, np.uint8))


def _on_device(pg: ProcessGroup, array: Array) -> Array:
    """Move a host array to where the group's backend takes arrays: the device that the program has named, or else the
    current one."""
    device = _device(pg)
    return placed(array, device_kind_named(device), pg.require_open()[device].context.device_index)


def _device(pg: ProcessGroup) -> str:
    """Return the kind of device whose arrays the group's backend takes: the host's, if some backend does so."""
    served = pg.config.device_backend_map
    return "cpu" if "cpu" in served else next(iter(served))


def _sized(pg: ProcessGroup, op: str, name: str, objects: Any) -> None:
    if objects is None or len(objects) != pg.size():
        raise ValueError(f"{op} on rank {pg.global_rank}: {name} must be a list of {pg.size()} entries")


def _root_objects(pg: ProcessGroup, op: str, name: str, objects: Any, root: int) -> None:
    if pg.rank() == root:
        _sized(pg, op, name, objects)
    elif objects:
        raise ValueError(f"{op} on rank {pg.global_rank}: {name} must be None; the root is rank {pg.ranks[root]}")


def _fill(pg: ProcessGroup, op: str, target: list[Any], objects: Any) -> None:
    if not isinstance(objects, list) or len(objects) != len(target):
        raise ValueError(
            f"{op} on rank {pg.global_rank}: the sender's list has {len(objects)} objects, and this one {len(target)}"
        )
    target[:] = objects
