"""What a server does when its process has no descriptor left for one who comes.

ZeroMQ tries again at once, for ever, with a whole processor. So those who wait in the kernel's queue are taken by means
of a descriptor that was kept for this, and sent away; they come again.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import sys
import time
from typing import Any

__all__ = ["Accepting"]

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
            #: Becomes readable when a connection could not be accepted.
            self.monitor = server.get_monitor_socket(zmq.EVENT_ACCEPT_FAILED)
        except BaseException:
            self._release()
            raise

    def on_failure(self) -> None:
        """Send away those who wait; there is no descriptor for them."""
        import zmq

        with contextlib.suppress(zmq.Again):
            while True:
                self.monitor.recv_multipart(zmq.NOBLOCK)
        if not self._told:
            self._told = True
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            print(
                f"rankwise: {self._name}: this process has no free file descriptor for those who connect; they are "
                f"sent away (raise the limit of {limit} with `ulimit -n`)",
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
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
