"""Which of this machine's addresses the other ranks should use."""

from __future__ import annotations

import ipaddress
import os
import socket

from rankwise.errors import DistNetworkError

__all__ = ["interfaces", "local_address"]

_OVERRIDES = ("RANKWISE_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


def local_address(toward: str) -> str:
    """Return the local address from which `toward`, a host or address, is reached.

    The route decides. `RANKWISE_SOCKET_IFNAME` or `GLOO_SOCKET_IFNAME`, a name or a list of names of interfaces,
    decides instead. The machine's own host name is never looked up.

    Raises:
        DistNetworkError: There is no route, or no such interface; then the message lists those there are.
    """
    family, target = _resolve(toward)
    names = next((os.environ[name] for name in _OVERRIDES if os.environ.get(name)), None)
    if names is not None:
        return _address_of_any([name.strip() for name in names.split(",")], family)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, 9))  # a datagram socket only asks the routing table
        except OSError as error:
            raise DistNetworkError(f"there is no route to {toward}: {error.strerror}") from error
        return str(probe.getsockname()[0])


def interfaces() -> dict[str, list[str]]:
    """Return the addresses of each network interface that has any."""
    found: dict[str, list[str]] = {}
    for _, name in socket.if_nameindex():
        addresses = [_ipv4_of(name), *_ipv6_of(name)]
        if any(addresses):
            found[name] = [address for address in addresses if address]
    return found


def _address_of_any(names: list[str], family: int) -> str:
    known = interfaces()
    for name in names:
        for address in known.get(name, []):
            if (ipaddress.ip_address(address).version == 6) == (family == socket.AF_INET6):
                return address
    raise DistNetworkError(
        f"no interface called {' or '.join(names)} has an address for this; there are: "
        + ", ".join(f"{name} ({', '.join(addresses)})" for name, addresses in known.items())
    )


def _resolve(host: str) -> tuple[int, str]:
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise DistNetworkError(f"host {host!r} cannot be found: {error}") from error
    return found[0][0], str(found[0][4][0])


def _ipv4_of(name: str) -> str:
    import fcntl

    request_address = 0x8915  # SIOCGIFADDR of Linux
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, request_address, name.encode().ljust(40, b"\0"))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def _ipv6_of(name: str) -> list[str]:
    try:
        with open("/proc/net/if_inet6") as table:
            rows = [line.split() for line in table]
    except OSError:
        return []
    return [str(ipaddress.ip_address(bytes.fromhex(row[0]))) for row in rows if row[5] == name]
