"""Who may come to a `TCPStore`: only this machine, or processes that know the job secret."""

from __future__ import annotations

from typing import Any, NamedTuple

from rankwise.errors import DistNetworkError
from rankwise_network import secret as job_secret
from rankwise_network.interface import is_loopback, numeric, outward_address, resolve_in_time

#: Names that mean this machine alone, whatever network it is on.
_THIS_MACHINE = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_WILDCARDS = ("0.0.0.0", "::", "*", "")


class Keys(NamedTuple):
    """The CURVE keys of both ends, all derived from the job secret: who has one of them knows it."""

    server_public: bytes
    server_private: bytes
    client_public: bytes
    client_private: bytes

    @classmethod
    def of(cls, secret: bytes) -> Keys:
        """Derive the keys."""
        return cls(*_pair(secret, "store server"), *_pair(secret, "store client"))

    def guard_server(self, socket: Any) -> None:
        """Have a server's socket prove that it knows the secret, and ask clients for their proof."""
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = self.server_public, self.server_private
        socket.zap_domain = b"rankwise"
        # Should nobody check the clients' keys, none of them gets in.
        socket.zap_enforce_domain = True

    def guard_client(self, socket: Any) -> None:
        """Have a client's socket prove that it knows the secret, and talk to nobody who does not."""
        socket.curve_serverkey = self.server_public
        socket.curve_publickey, socket.curve_secretkey = self.client_public, self.client_private

    def client_key(self) -> bytes:
        """Return the key that clients come with, as ZeroMQ shows it to the server."""
        from zmq.utils import z85

        return bytes(z85.decode(self.client_public))

    def __repr__(self) -> str:
        return "Keys(...)"


def addresses_of(host: str, guarded: bool, timeout_s: float) -> list[str]:
    """Return the addresses, in order of preference, at which a store on a host may be served and looked for.

    Raises:
        ValueError: The name stands for all addresses, or is none.
        DistNetworkError: It can be no name; or it leads to the network, and there is no secret.
        DistTimeoutError: Nobody knows the name, or its look-up takes too long.
    """
    if host in _WILDCARDS or numeric(host) in _WILDCARDS:
        raise ValueError(f"TCPStore: {host!r} stands for every address of a machine; name the one to use")
    found = resolve_in_time(host, timeout_s)
    inside = [address for address in found if is_loopback(address)]
    if not guarded:
        if inside:
            return inside
        raise DistNetworkError(
            f"TCPStore: {host} ({found[0]}) can be reached from the network, and without a job secret anybody there "
            f"could join: {job_secret.ADVICE}"
        )
    if len(inside) == len(found) and numeric(host) is None and not _means_this_machine(host):
        # Many systems look up their own name as a loopback address, where the other hosts would wait in vain.
        outside = outward_address()
        return found if outside is None else [outside]
    return found


def _means_this_machine(name: str) -> bool:
    name = name.lower().rstrip(".")
    return name in _THIS_MACHINE or name.endswith(".localhost")


def _pair(secret: bytes, purpose: str) -> tuple[bytes, bytes]:
    import zmq
    from zmq.utils import z85

    private = z85.encode(job_secret.derive(secret, purpose))
    return zmq.curve_public(private), private
