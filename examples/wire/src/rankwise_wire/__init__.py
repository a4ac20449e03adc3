"""The backend `wire`: a connection of multiprocessing for each pair of ranks. This module only declares it."""

from rankwise.backends import (
    COLLECTIVES,
    BackendSpec,
    Capabilities,
    Check,
    Communicator,
    Context,
    Device,
    derived,
    hookimpl,
    loading,
    native,
    no,
)

OWN = ("broadcast", "all_reduce")
OPS = {**native("send", "recv", *OWN), **derived(*(op for op in COLLECTIVES if op not in OWN))}
FEATURES = {
    **native("tags", "any_source", "short_messages", "message_dtypes", "abort"),
    **derived("async", "uneven", "sparse", "timeout", "mismatch", "shrink", "reconfigure"),
    **no("sparse", reason="its collectives move arrays as they lie in memory"),
    **no("split", reason="each group has connections of its own"),
}


def create(context: Context) -> Communicator:
    """Make the communicator of one group; what that needs is imported now."""
    with loading():
        from rankwise_wire.communicator import WireCommunicator
    return WireCommunicator(context)


def checks() -> list[Check]:
    """Tell `rankwise doctor` whether the paths of sockets are short enough for the system."""
    import tempfile

    folder = tempfile.gettempdir()
    if len(folder) <= 80:
        return [Check(True, f"sockets lie in {folder}")]
    return [
        Check(False, f"paths of sockets in {folder} are too long", "set TMPDIR to a shorter one, or WIRE_FAMILY=tcp")
    ]


@hookimpl
def rankwise_backend() -> BackendSpec:
    """Declare the backend."""
    return BackendSpec(
        "wire",
        api_version=1,
        capabilities=Capabilities("wire", {"cpu": Device(OPS, FEATURES)}),
        create=create,
        checks=checks,
        variants={"unix": {"WIRE_FAMILY": "unix"}, "tcp": {"WIRE_FAMILY": "tcp"}},
    )
