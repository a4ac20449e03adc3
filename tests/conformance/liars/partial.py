"""Backends that offer little, and keep to it: the kit must find nothing wrong with them.

They are the backend `local` behind tables that say less, some with the reason, some without a word.
"""

from rankwise.backends import COLLECTIVES, IN_THREADS, BackendSpec, Capabilities, Device, derived, native, no
from rankwise.errors import DistBackendError
from rankwise_local import LocalCommunicator
from rankwise_local.communicator import CAPABILITIES

WHY = "this product is sold without"
_UNPROMISED = no(
    *("async", "tags", "any_source", "short_messages", "message_dtypes", "probe"),
    *("uneven", "sparse", "timeout", "mismatch", "shrink"),
    reason=WHY,
)


class _Sized(LocalCommunicator):
    """A communicator that no group gets whose size is not in the table."""

    sizes = range(0)

    def __init__(self, context):
        if context.size not in self.sizes:
            raise DistBackendError(f"there is no cable for {context.size}")
        super().__init__(context)


def _spec(name, ops, features, communicator=LocalCommunicator):
    sizes = {"sizes": communicator.sizes} if issubclass(communicator, _Sized) else {}
    table = Capabilities(name, {"cpu": Device(ops, features)}, **sizes)
    return BackendSpec(name, 1, table, communicator, launch=IN_THREADS, attends=True)


def few_dtypes():
    """Two dtypes, neither of which is float32; and of the reductions only the sum."""
    two = frozenset({"float64", "int64"})
    ops = native("send", "recv", dtypes=two, reason=WHY)
    ops |= derived(*(op for op in COLLECTIVES if "reduce" not in op), dtypes=two, reason=WHY)
    ops |= derived("all_reduce", "reduce", "reduce_scatter", reduce_ops={"SUM": two}, reason=WHY)
    features = native("tags", "any_source", "short_messages", "message_dtypes", "probe", "abort")
    return _spec("few_dtypes", ops, features | derived("async", "uneven", "sparse", "timeout", "mismatch", "shrink"))


def only_messages():
    """Bytes between two ranks, and no collective at all."""
    ops = native("send", "recv", dtypes=frozenset({"uint8"}), reason=WHY) | no(*COLLECTIVES, reason=WHY)
    features = native("tags", "any_source", "short_messages", "probe", "abort") | derived("timeout")
    return _spec("only_messages", ops, features | no("async", "message_dtypes", "uneven", "mismatch", reason=WHY))


def no_features():
    """Everything that is synchronous, and no feature."""
    return _spec("no_features", native("send", "recv") | derived(*COLLECTIVES), _UNPROMISED)


def messages_and_no_word():
    """Messages alone, and no word of the collectives, although they would work."""
    return _spec(
        "messages_and_no_word", native("send", "recv"), native("tags", "any_source", "short_messages", "abort")
    )


def broadcast_alone():
    """Two collectives of two dtypes."""
    ops = derived("broadcast", dtypes=frozenset({"float64", "int64"})) | derived("barrier")
    return _spec("broadcast_alone", ops, native("abort"))


def int8_alone():
    """Every operation, on one dtype."""
    one = frozenset({"int8"})
    ops = native("send", "recv", dtypes=one) | derived(*(op for op in COLLECTIVES if "reduce" not in op), dtypes=one)
    ops |= derived("all_reduce", "reduce", "reduce_scatter", reduce_ops={"SUM": one, "MAX": one})
    return _spec("int8_alone", ops, CAPABILITIES.devices["cpu"].features)


def _without(name, *left_out):
    device = CAPABILITIES.devices["cpu"]
    return _spec(name, device.ops, {word: cell for word, cell in device.features.items() if word not in left_out})


def no_tags():
    """Messages that go by their order alone."""
    return _without("no_tags", "tags", "any_source")


def no_async():
    """Collectives that block."""
    return _without("no_async", "async")


def _of_sizes(name, sizes):
    device = CAPABILITIES.devices["cpu"]
    return _spec(name, device.ops, device.features, type(name, (_Sized,), {"sizes": sizes}))


def pairs():
    """A cable between two ranks, and no group of another size."""
    return _of_sizes("pairs", range(2, 3))


def up_to_four():
    """Groups of one to four ranks."""
    return _of_sizes("up_to_four", range(1, 5))


def fours():
    """Groups of four ranks and no others."""
    return _of_sizes("fours", range(4, 5))
