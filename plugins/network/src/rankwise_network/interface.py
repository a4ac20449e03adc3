"""Interfaces, addresses and ports: at which a process listens, and by which others reach it."""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from rankwise.errors import DistNetworkError, DistTimeoutError
from rankwise.stores import Deadline, cause, debug_log, heed, shortage, start_thread
from rankwise_network.doors import BACKLOG

__all__ = [
    *("DNS_TIMEOUT_S", "address_of", "at_free_port", "interface_of", "is_loopback", "listening"),
    *("local_address", "numeric", "place", "resolve", "resolve_in_time", "unreachable"),
]

#: Both are understood; the first that is set counts.
_VARIABLES = ("RANKWISE_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")

#: Asks the kernel for an interface's address; a number of Linux, and one of the BSDs and macOS.
_SIOCGIFADDR = 0x8915 if sys.platform == "linux" else 0xC0206921
_IPV6_TABLE = "/proc/net/if_inet6"
_LINK_LOCAL_SCOPE = 0x20
_IPV4_NBYTES, _LOOPBACK_NETWORK, _IPV6_LOOPBACK = 4, 127, bytes(15) + b"\1"
#: What an IPv4 address begins with where it is written as one of IPv6.
_MAPPED = bytes(10) + b"\xff\xff"
#: Any port will do: connecting a datagram socket sends nothing.
_DISCARD_PORT = 9

#: How long a look-up of a name may take where the caller has set no limit.
DNS_TIMEOUT_S = 10.0
#: After which time in which nobody knows a name that is told.
_REMARK_S = 5.0
_LONGEST_NAME, _LONGEST_PART = 253, 63

#: An address that is routed like any other host's, and belongs to nobody (RFC 5737).
_ELSEWHERE = "192.0.2.1"


def local_address(toward: str, timeout_s: float = DNS_TIMEOUT_S) -> str:
    """Return the address of this machine that `toward` can reach, for listening on.

    `RANKWISE_SOCKET_IFNAME` or `GLOO_SOCKET_IFNAME`, a list of interfaces, overrides the choice: the first of them that
    has an address of the right family counts. This machine's own name is never looked up.

    Args:
        toward: The master's name or address.
        timeout_s: How long a look-up of its name may take.

    Raises:
        ValueError: The variable names no interface that is there and has an address.
        DistNetworkError: `toward` has no address, or no route leads there.
        DistTimeoutError: The look-up took too long.
    """
    addresses = resolve(toward, timeout_s)
    for variable in _VARIABLES:
        names = os.environ.get(variable)
        if names:
            chosen = _of_interface(variable, names, addresses)
            debug_log(f"this process listens at {chosen}, as {variable}={names} says")
            return chosen
    for address in addresses:
        found = _route(address)
        if found is not None:
            debug_log(f"this process listens at {found}, from which packets to {toward} leave")
            return found
    if is_loopback(addresses[0]):
        raise DistNetworkError(f"{toward}, where the ranks are to meet, cannot be reached: {unreachable(addresses[0])}")
    raise DistNetworkError(
        f"no route leads from this machine to {toward} ({', '.join(addresses)}), where the ranks are to meet; give an "
        f"address that all hosts can reach (MASTER_ADDR), or name this host's interface with {_VARIABLES[0]}"
    )


def resolve(host: str, timeout_s: float = DNS_TIMEOUT_S) -> list[str]:
    """Return the addresses of a host in numbers, those of IPv4 first.

    Raises:
        DistNetworkError: The name is unknown.
        DistTimeoutError: The look-up took longer than `timeout_s`.
    """
    literal = numeric(host)
    if literal is not None:
        return [literal]
    found: list[str] = []
    problem: list[OSError] = []

    def look_up() -> None:
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            known = [address_of(info[4]) for info in sorted(infos, key=lambda info: info[0] != socket.AF_INET)]
        except (OSError, ValueError) as error:
            problem.append(error if isinstance(error, OSError) else OSError(str(error)))
        else:
            found.extend(known)

    # In a thread, for nothing else bounds how long a name server takes.
    thread = threading.Thread(target=look_up, name="rankwise name look-up", daemon=True)
    start_thread(thread)
    thread.join(timeout_s)
    if problem:
        short = shortage()
        text = f"the host name {host[:80]!r} cannot be looked up here: {_why_none(host) or cause(short or problem[0])}"
        raise (DistNetworkError if short or _why_none(host) else _UnknownError)(text)
    if not found:
        raise DistTimeoutError(f"the look-up of host name {host!r} has taken longer than {timeout_s:g} s")
    return list(dict.fromkeys(found))


def resolve_in_time(host: str, timeout_s: float) -> list[str]:
    """Return what `resolve` does, and wait for a name that nobody knows yet, as a new machine's may be.

    Raises:
        DistNetworkError: It can be no name.
        DistTimeoutError: Nobody has known it for `timeout_s`.
    """
    deadline, pause_s, said = Deadline(timeout_s), 0.05, False
    while True:
        try:
            return resolve(host, deadline.remaining())
        except _UnknownError as error:
            if not said and timeout_s - deadline.remaining() > _REMARK_S:
                said = True
                import logging  # only now: names are mostly found at the first attempt

                logging.getLogger("rankwise").warning("%s; waiting for it", error)
            heed()
            time.sleep(min(pause_s, deadline.remaining()))
            if deadline.expired():
                raise DistTimeoutError(f"{error}; that has been so for {timeout_s:.2g} s") from None
        pause_s = min(1.5 * pause_s, 1.0)


class _UnknownError(DistNetworkError):
    """Nobody knows a name, so far."""


def _why_none(host: str) -> str:
    """Say why a text can be no name of a host; "" if it can."""
    parts = host.removesuffix(".").split(".")
    if not all(parts):
        return "there must be something between its dots"
    if any(len(part) > _LONGEST_PART for part in parts) or len(host) > _LONGEST_NAME:
        return f"a name has {_LONGEST_NAME} characters at most, and {_LONGEST_PART} between two dots"
    try:
        host.encode("idna")
    except UnicodeError:
        return "a name cannot have such characters"
    return "a name has no null character" if "\0" in host else ""


def numeric(host: str) -> str | None:
    """Return an address in its usual form, without brackets; None for a name."""
    text = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    bare, sign, scope = text.partition("%")
    packed = _packed(bare)
    if packed is None or (sign and (len(packed) == _IPV4_NBYTES or not scope or "%" in scope)):
        return None
    return _text(packed) + sign + scope


def place(address: str, port: int, near: str = "") -> tuple[Any, ...]:
    """Return what sockets take for a numeric address and a port: for one of a link alone, with the interface's number.

    Args:
        address: The address.
        port: The port.
        near: An address of this machine on the same link; on others the interface may have another name.

    Raises:
        OSError: There is no such interface.
    """
    bare, _, scope = address.partition("%")
    if not scope:
        return address, port
    scope = near.partition("%")[2] or scope
    return bare, port, 0, int(scope) if scope.isdecimal() else socket.if_nametoindex(scope)


def address_of(where: tuple[Any, ...]) -> str:
    """Return the numeric address of what a socket tells of one of its ends: one of a link alone with its interface."""
    scope = where[3] if len(where) > 3 else 0
    return f"{where[0]}%{socket.if_indextoname(scope)}" if scope else str(where[0])


def is_loopback(address: str) -> bool:
    """Tell whether a numeric address never leaves this machine."""
    packed = _packed(address.partition("%")[0])
    if packed is None:
        raise ValueError(f"{address!r} is no numeric address")
    packed = packed.removeprefix(_MAPPED)
    return packed[0] == _LOOPBACK_NETWORK if len(packed) == _IPV4_NBYTES else packed == _IPV6_LOOPBACK


def _packed(address: str) -> bytes | None:
    """Return an address as bytes, or None for what is none. `ipaddress` would do, but takes long to load."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):
            return socket.inet_pton(family, address)
    return None


def _text(packed: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(packed) == _IPV4_NBYTES else socket.AF_INET6, packed)


def outward_address() -> str | None:
    """Return the address by which other machines know this one; None if it is on no network."""
    for variable in _VARIABLES:
        names = os.environ.get(variable)
        if names:
            return _of_interface(variable, names, [_ELSEWHERE])
    found = _route(_ELSEWHERE)
    return None if found is None or is_loopback(found) else found


def interface_of(address: str) -> str | None:
    """Return the name of the interface that has an address of this machine."""
    return next((name for _, name in socket.if_nameindex() if address in (_ipv4(name), _ipv6(name))), None)


def _route(address: str) -> str | None:
    """Ask the kernel which address of this machine packets to `address` would bear."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(place(address, _DISCARD_PORT))
            return address_of(probe.getsockname())
        except OSError:
            return None


def unreachable(address: str) -> str:
    """Say why nothing that this machine sends gets to a numeric address; "" if it may."""
    if _route(address) is not None:
        return ""
    if is_loopback(address):
        return "the loopback interface of this machine is down; on Linux `ip link set lo up` brings it up"
    return "no route leads there from this machine"


def _of_interface(variable: str, names: str, addresses: list[str]) -> str:
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    there = [name for _, name in socket.if_nameindex()]
    missing = [name for name in wanted if name not in there]
    if missing or not wanted:
        what = f"there is no interface {', '.join(missing)}" if missing else "it names no interface"
        raise ValueError(f"{variable}={names}: {what}; this machine has {', '.join(there)}")
    six_first = ":" in addresses[0]
    for ask in (_ipv6, _ipv4) if six_first else (_ipv4, _ipv6):
        for name in wanted:
            address = ask(name)
            if address is not None:
                return address
    raise ValueError(f"{variable}={names}: none of these interfaces has an address, as far as this system tells")


def _ipv4(name: str) -> str | None:
    try:
        import fcntl
    except ImportError:  # Windows, which tells nothing of an interface but its name
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("16s24x", name.encode()))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def _ipv6(name: str) -> str | None:
    """Return an address of the interface, one of its link alone only if it has no other."""
    try:
        # opens: nothing, the kernel says it
        with open(_IPV6_TABLE, encoding="ascii") as table:
            rows = [line.split() for line in table]
    except OSError:
        return None
    found = [(int(row[3], 16), row[0]) for row in rows if row[5] == name]
    for scope, digits in sorted(found):
        address = _text(bytes.fromhex(digits))
        return f"{address}%{name}" if scope == _LINK_LOCAL_SCOPE else address
    return None


# Which port a process listens at: any that is free, or one of a range that the user has set for a firewall

VARIABLE = "RANKWISE_PORTS"
_LAST = (1 << 16) - 1

_T = TypeVar("_T")


def at_free_port(open_at: Callable[[int], _T]) -> _T:
    """Return what `open_at` does with a free port: 0, or with `RANKWISE_PORTS` the first of them not in use.

    Args:
        open_at: Listens at the port that it is given, and lets addresses be used again unless that is 0.

    Raises:
        ValueError: The variable names no range of ports.
        DistNetworkError: All of the range are in use.
        OSError: `open_at` cannot listen for another reason.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return open_at(0)
    for port in _range(text):
        try:
            return open_at(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise DistNetworkError(f"{VARIABLE}={text}: all of these ports are in use; give a larger range")


def listening(address: str, port: int) -> socket.socket:
    """Return a socket that listens at a numeric address of this machine, and at a port; 0 is any.

    Raises:
        OSError: It cannot.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        # Lets a port be used again whose last connections are still fading away: one that was asked for now, and any
        # later. One that is chosen now is not to be shared with a socket that keeps it without listening.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, bool(port))
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # opens: the TCP port of a rank, or of a store
        # reached by: processes that a route leads to that address: with a job secret other hosts, without one this host
        # alone
        # guarded by: one address and never all, a separate port; a rank asks for the proof of the handshake
        # before it reads anything else, and a store for CURVE's; without a job secret a store asks for nothing
        # proved by: tests/security/test_hostile.py
        sock.bind(place(address, port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def _range(text: str) -> Iterable[int]:
    first, dash, last = (part.strip() for part in text.partition("-"))
    if not (first.isascii() and first.isdigit() and (last.isascii() and last.isdigit() if dash else True)):
        raise ValueError(f"{VARIABLE}={text}: expected a range of ports, such as 29500-29600")
    ports = range(int(first), int(last or first) + 1)
    if not ports or ports[0] < 1 or ports[-1] > _LAST:
        raise ValueError(f"{VARIABLE}={text}: expected a range of ports from 1 to {_LAST}, the lower one first")
    return ports
