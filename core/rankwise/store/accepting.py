"""Those who come to a server's listening socket and do not get in.

Where the process has no descriptor left for them ZeroMQ tries again at once, for ever, with a whole processor. So
those who wait in the kernel's queue are taken by means of a descriptor kept for this, and sent away; they come again.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import time
from typing import Any

from rankwise.basics.system_errors import descriptor_limit

__all__ = ["MONITOR_EVENT", "Accepting"]

#: How ZeroMQ tells of what happens to a socket: what, and a number that says more.
MONITOR_EVENT = struct.Struct("<HI")

#: Lest ZeroMQ and we both do nothing but try.
_PAUSE_S = 0.01


class Accepting:
    """Looks after one listening socket of ZeroMQ. For the thread that serves it.

    Args:
        server: ZeroMQ's socket.
        descriptor: The listening socket's descriptor, which is ZeroMQ's.
        name: What is served, for messages.
    """

    def __init__(self, server: Any, descriptor: int, name: str) -> None:
        import zmq

        self._server, self._listening, self._name = server, descriptor, name
        self._reserve = _any_descriptor()
        self._told = False
        try:
            #: Becomes readable when somebody has not got in.
            self.monitor = server.get_monitor_socket(zmq.EVENT_ACCEPT_FAILED | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
        except BaseException:
            self._release()
            raise

    def look(self) -> int:
        """See who has not got in; return how many of them have another job secret than the server, or only one has."""
        import zmq

        refused, full = 0, False
        with contextlib.suppress(zmq.Again):
            while True:
                event, value = MONITOR_EVENT.unpack(self.monitor.recv_multipart(zmq.NOBLOCK)[0])
                full = full or event == zmq.EVENT_ACCEPT_FAILED
                refused += event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and value in (
                    zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC,
                    zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH,
                )
        if full:
            self._on_full()
        return refused

    def _on_full(self) -> None:
        if not self._told:
            self._told = True
            print(
                f"rankwise: {self._name}: this process has no free file descriptor for those who connect; they are "
                f"sent away ({descriptor_limit()})",
                file=sys.stderr,
            )
        self._turn_away()

    def _turn_away(self) -> None:
        self._release()
        listening = socket.socket(fileno=self._listening)
        listening.settimeout(0)
        try:
            while True:
                listening.accept()[0].close()
        except BlockingIOError:
            pass  # nobody waits any more
        except OSError:
            time.sleep(_PAUSE_S)  # another thread has been quicker to take the descriptor
        finally:
            listening.detach()
            with contextlib.suppress(OSError):
                self._reserve = _any_descriptor()

    def _release(self) -> None:
        reserve, self._reserve = self._reserve, -1
        if reserve >= 0:
            os.close(reserve)

    def close(self) -> None:
        """Give back what this holds."""
        self._server.disable_monitor()
        self.monitor.close(0)
        self._release()


def _any_descriptor() -> int:
    return os.open(os.devnull, os.O_RDONLY)
