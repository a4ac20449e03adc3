"""The records as torch's flight recorder would have written them, for torch's own analyser (`torchfrtrace DIR`).

Collectives only: the analyser matches messages only within coalesced blocks. Each list begins with the first collective
that all members of a group still have in their records, as the analyser wants it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rankwise_tools.recordings.records import Operation, Record

__all__ = ["VERSION", "dumps"]

#: The version of torch's format, which its analyser looks at.
VERSION = "2.10"

_STATES = {"done": "completed", "failed": "started", "running": "started", "issued": "scheduled"}
#: What each dtype is called there.
_DTYPES = {
    "float16": "Half",
    "float32": "Float",
    "float64": "Double",
    "bfloat16": "BFloat16",
    "bool": "Bool",
    "int8": "Char",
    "uint8": "Byte",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


def dumps(records: Mapping[int, Record]) -> dict[int, dict[str, Any]]:
    """Return for each rank what is to be pickled into a file whose name ends with its number."""
    first, sizes = _first_in_common(records), _sizes(records)
    return {rank: _dump(record, first, sizes) for rank, record in records.items()}


def _first_in_common(records: Mapping[int, Record]) -> dict[str, int]:
    """Return for each group the first number that all have who know it."""
    first: dict[str, int] = {}
    for record in records.values():
        own: dict[str, int] = {}
        for op in record.operations:
            if not op.message:
                own[op.group] = min(op.number, own.get(op.group, op.number))
        for group, number in own.items():
            first[group] = max(number, first.get(group, number))
    return first


def _sizes(records: Mapping[int, Record]) -> dict[tuple[str, int], int]:
    """Return the most elements that any rank brought to each collective: the analyser takes uneven ones for errors."""
    found: dict[tuple[str, int], int] = {}
    for record in records.values():
        for op in record.operations:
            key = op.group, op.number
            found[key] = max(_count(op), found.get(key, 0))
    return found


def _count(op: Operation) -> int:
    try:
        return op.nbytes // (1 if op.dtype is None else np.dtype(op.dtype).itemsize)
    except TypeError:  # of a library that is not here
        return op.nbytes


def _dump(record: Record, first: Mapping[str, int], sizes: Mapping[tuple[str, int], int]) -> dict[str, Any]:
    wanted = [op for op in record.operations if not op.message and op.number >= first[op.group]]
    return {
        "version": VERSION,
        "pg_config": {
            name: {"name": name, "desc": group.description, "ranks": str(list(group.ranks))}
            for name, group in record.groups.items()
        },
        "pg_status": {
            str(index): {
                "last_enqueued_collective": group.begun,
                "last_started_collective": group.begun,
                "last_completed_collective": group.finished,
            }
            for index, group in enumerate(record.groups.values())
        },
        "entries": [_entry(index, op, record, sizes) for index, op in enumerate(wanted)],
    }


def _entry(index: int, op: Operation, record: Record, sizes: Mapping[tuple[str, int], int]) -> dict[str, Any]:
    group = record.groups[op.group]
    count = sizes[op.group, op.number] if op.op != "all_reduce" else _count(op)
    given, got = _shapes(op.op, count, len(group.ranks))
    dtypes = [_DTYPES.get(op.dtype or "", op.dtype or "")] if op.dtype else []
    day_ns = record.clock_offset_ns
    return {
        "record_id": index,
        "pg_id": list(record.groups).index(op.group),
        "process_group": (op.group, group.description),
        "collective_seq_id": op.number + 1,
        "p2p_seq_id": 0,
        "op_id": op.number + 1,
        "profiling_name": f"gloo:{op.op}",
        "time_created_ns": op.began_ns + day_ns,
        "time_discovered_started_ns": op.began_ns + day_ns,
        "time_discovered_completed_ns": op.ended_ns + day_ns if op.ended_ns else None,
        "duration_ms": (op.ended_ns - op.began_ns) / 1e6 if op.ended_ns else None,
        "input_sizes": given,
        "input_dtypes": dtypes,
        "output_sizes": got,
        "output_dtypes": dtypes,
        "state": _STATES[op.state],
        "retired": op.state == "done",
        "timeout_ms": 0,
        "is_p2p": False,
        "frames": [{"name": op.function, "filename": op.file, "line": op.line}] if op.file else [],
    }


def _shapes(op: str, count: int, size: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return sizes of input and output as the analyser checks them."""
    if op == "barrier":
        return [[1]], [[1]]
    if op == "all_gather":
        return [[count]], [[math.prod((count, size))]]
    if op == "reduce_scatter":
        return [[count * size]], [[count]]
    return [[count]], [[count]]
