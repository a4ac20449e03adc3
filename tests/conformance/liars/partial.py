"""Backends that offer little, and keep to it: the kit must find nothing wrong with them.

They are the backend `local` behind tables that say less; where more would work, the table says why it is not offered.
"""

from rankwise.backends import COLLECTIVES, IN_THREADS, BackendSpec, Capabilities, Device, derived, native, no
from rankwise_local import LocalCommunicator

WHY = "this product is sold without"
_UNPROMISED = no(
    *("async", "tags", "any_source", "short_messages", "message_dtypes"),
    *("uneven", "sparse", "timeout", "mismatch", "shrink"),
    reason=WHY,
)


def _spec(name, ops, features):
    table = Capabilities(name, {"cpu": Device(ops, features)})
    return BackendSpec(name, 1, table, LocalCommunicator, launch=IN_THREADS)


def few_dtypes():
    """Two dtypes, neither of which is float32; and of the reductions only the sum."""
    two = frozenset({"float64", "int64"})
    ops = native("send", "recv", dtypes=two, reason=WHY)
    ops |= derived(*(op for op in COLLECTIVES if "reduce" not in op), dtypes=two, reason=WHY)
    ops |= derived("all_reduce", "reduce", "reduce_scatter", reduce_ops={"SUM": two}, reason=WHY)
    features = native("tags", "any_source", "short_messages", "message_dtypes", "abort")
    return _spec("few_dtypes", ops, features | derived("async", "uneven", "sparse", "timeout", "mismatch", "shrink"))


def only_messages():
    """Bytes between two ranks, and no collective at all."""
    ops = native("send", "recv", dtypes=frozenset({"uint8"}), reason=WHY) | no(*COLLECTIVES, reason=WHY)
    features = native("tags", "any_source", "short_messages", "abort") | derived("timeout")
    return _spec("only_messages", ops, features | no("async", "message_dtypes", "uneven", "mismatch", reason=WHY))


def no_features():
    """Everything that is synchronous, and no feature."""
    return _spec("no_features", native("send", "recv") | derived(*COLLECTIVES), _UNPROMISED)
