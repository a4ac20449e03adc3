"""What `rankwise doctor --peer` looks at: whether two hosts can connect to each other, before a job finds out."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from time import monotonic

from rankwise.backends import start_thread
from rankwise.errors import DistError
from rankwise_launch.checks import Finding, Level
from rankwise_network import interface

#: Where two doctors meet. The ranks of a job listen at ports that the system chooses, so one of those is tried as well.
PORT = 29512
_SECTION = "the way to another host"
#: How long a doctor waits for the one on the other host, how long one attempt may take, and how often it tries.
_WAIT_S, _CONNECT_S, _AGAIN_S = 20.0, 3.0, 0.2
_LINE_NBYTES = 32
_LINE = re.compile(rb"rankwise doctor (\d{1,5})\n")


def check_peer(target: str, wait_s: float = _WAIT_S) -> Iterator[Finding]:
    """Try the way to another host and, where a doctor runs there too, the way back.

    Args:
        target: The host, or HOST:PORT for something that listens there already.
        wait_s: How long to wait for the other doctor.
    """
    host, port = _split(target)
    try:
        addresses = interface.resolve(host)
        here = interface.local_address(host)
    except (DistError, ValueError) as error:
        yield Finding(_SECTION, Level.BAD, str(error))
        return
    there = next((address for address in addresses if (":" in address) == (":" in here)), addresses[0])
    name = interface.interface_of(here)
    yield Finding(_SECTION, Level.GOOD, f"{host} is {there}; this host is {here}, interface {name or 'unknown'}")
    if port is not None:
        why = _connect(here, there, port)
        yield _told(here, there, f"port {port}", why, f"start what listens at port {port} of {host}, or open the port")
        return
    try:
        meeting = _PairCheck(here, there)
    except OSError as error:
        yield Finding(_SECTION, Level.BAD, f"this host cannot listen at {here}, port {PORT}: {error.strerror}")
        return
    with meeting:
        meeting.run(wait_s)
    both = f"run `rankwise doctor --peer {here}` on {host} at the same time; if it ran, look for a firewall"
    yield _told(here, there, f"port {PORT}", meeting.there[PORT], both)
    yield _told(there, here, f"port {PORT}", meeting.here[PORT], both)
    any_port = "a port that the system chose, as for the ranks of a job"
    open_all = "open all ports between the hosts of a job, or have it use another interface by RANKWISE_SOCKET_IFNAME"
    yield _told(here, there, any_port, meeting.there[0], open_all)
    yield _told(there, here, any_port, meeting.here[0], open_all)


def _split(target: str) -> tuple[str, int | None]:
    if interface.numeric(target) is not None:
        return target, None
    host, sign, port = target.rpartition(":")
    if sign and port.isdigit() and int(port) < 1 << 16:
        return host, int(port)
    return target, None


def _told(source: str, target: str, port: str, problem: str, remedy: str) -> Finding:
    way = f"from {source} to {target}, {port}"
    if problem:
        return Finding(_SECTION, Level.BAD, f"{way}: {problem}", remedy)
    return Finding(_SECTION, Level.GOOD, f"{way}: connected")


def _open(here: str, there: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in there else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.settimeout(_CONNECT_S)
        # opens: nothing, it only says from which address to connect
        sock.bind(interface.place(here, 0))
        sock.connect(interface.place(there, port, here))
    except BaseException:
        sock.close()
        raise
    return sock


def _connect(here: str, there: str, port: int) -> str:
    """Return why no connection comes about; nothing if one does."""
    try:
        _open(here, there, port).close()
    except TimeoutError:
        return f"no answer within {_CONNECT_S:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return ""


class _PairCheck:
    """This doctor's end of a meeting of two.

    Each listens at two ports and connects to two of the other; the machine that connects to the known port tells its
    other one.

    Attributes:
        there: For the known port and for the chosen one (0), why this host cannot connect; nothing if it can.
        here: Likewise why the other has not connected.
    """

    def __init__(self, here: str, there: str) -> None:
        self._addresses = here, there
        self._open = ExitStack()
        self._listeners: dict[socket.socket, int] = {}
        try:
            for port in (PORT, 0):
                self._listen(port)
        except BaseException:
            self._open.close()
            raise
        self._line = b"rankwise doctor %d\n" % list(self._listeners)[1].getsockname()[1]
        #: The port that the other's system has chosen, once it has told.
        self._chosen = 0
        self.there = {PORT: "not tried", 0: "not tried, as the other doctor has not told it"}
        self.here = dict.fromkeys((PORT, 0), "nothing has come")

        self._done = threading.Event()
        # Threads of their own answer, as the two doctors may call each other at the same time.
        self._threads = [threading.Thread(target=partial(self._serve, *item)) for item in self._listeners.items()]

    def __enter__(self) -> _PairCheck:
        for thread in self._threads:
            start_thread(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()
        self._open.close()

    def run(self, wait_s: float) -> None:
        """Try all ways until each works, or the time has passed."""
        until = monotonic() + wait_s
        while any((*self.there.values(), *self.here.values())) and monotonic() < until:
            if self.there[PORT]:
                self.there[PORT] = self._call(PORT)
            if self._chosen and self.there[0]:
                self.there[0] = self._call(self._chosen)
            self._done.wait(_AGAIN_S)

    def _listen(self, port: int) -> None:
        here = self._addresses[0]
        sock = self._open.enter_context(
            socket.socket(socket.AF_INET6 if ":" in here else socket.AF_INET, socket.SOCK_STREAM)
        )
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # opens: the ports of `rankwise doctor --peer`, while it runs
        # reached by: processes that a route leads to that address
        # guarded by: who comes from another address than the peer's is sent away; one line with the number of a
        # port is read
        # proved by: tests/core/test_peer_check.py
        sock.bind(interface.place(here, port))
        sock.listen()
        sock.settimeout(_AGAIN_S)
        self._listeners[sock] = port

    def _call(self, port: int) -> str:
        try:
            with _open(*self._addresses, port) as sock:
                self._exchange(sock)
        except TimeoutError:
            return f"no answer within {_CONNECT_S:g} s"
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _serve(self, listener: socket.socket, port: int) -> None:
        while not self._done.is_set():
            try:
                sock, address = listener.accept()
                with sock:
                    if address[0] == self._addresses[1].partition("%")[0]:  # else a stranger
                        sock.settimeout(_CONNECT_S)
                        self._exchange(sock)
                        self.here[port] = ""
            except OSError:
                continue  # nobody has come, or not to the end

    def _exchange(self, sock: socket.socket) -> None:
        sock.sendall(self._line)
        line = b""
        while not line.endswith(b"\n") and len(line) < _LINE_NBYTES:
            piece = sock.recv(_LINE_NBYTES - len(line))
            if not piece:
                break
            line += piece
        found = _LINE.fullmatch(line)
        if found and 0 < int(found[1]) < 1 << 16:
            self._chosen = int(found[1])
