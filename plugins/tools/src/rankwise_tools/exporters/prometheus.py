"""What has been counted, as text that Prometheus reads, and a server for it at a loopback address."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any

from rankwise.backends import start_thread
from rankwise.launching import World, current, debug_log
from rankwise_network import doors
from rankwise_network.launcher_env import local_rank
from rankwise_tools.exporters.ledger import Figures, Labels, Ledger
from rankwise_watch.reading import PORT, OperationStats

#: What the page says of itself, in its first line.
PUBLIC = "Every user of this host can read this page: counts and times by rank, group, backend and operation."

#: The metrics: name, kind, what it is, and where it comes from; None where a backend cannot tell.
_METRICS: tuple[tuple[str, str, str, Callable[[OperationStats], float | None]], ...] = (
    ("rankwise_calls_total", "counter", "Calls that have begun.", lambda op: op.calls),
    ("rankwise_bytes_total", "counter", "Bytes that this rank has brought to them.", lambda op: op.nbytes),
    ("rankwise_seconds_total", "counter", "Time in calls.", lambda op: op.time_s),
    ("rankwise_waiting_seconds_total", "counter", "Time waiting for others in calls.", lambda op: op.waiting_s),
    ("rankwise_errors_total", "counter", "Calls that have failed.", lambda op: op.errors),
)


def render(figures: Figures) -> str:
    """Return the text for one process."""
    return "".join(_lines(figures))


def _lines(figures: Figures) -> Iterator[str]:
    yield f"# {PUBLIC}\n"
    for name, kind, text, value_of in _METRICS:
        yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
        for labels, done in figures.items():
            value = value_of(done)
            if value is not None:
                yield f"{name}{{{_listed(labels)}}} {value}\n"


def _listed(labels: Labels) -> str:
    return ",".join(f"{name}={_quoted(str(value))}" for name, value in labels._asdict().items())


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


#: The servers of this process, by port: they stay until it ends.
_served: dict[int, _Server] = {}


def serve(port: int | None) -> int:
    """Serve the text of this process's world at 127.0.0.1, and return the port."""
    world, wanted = current(), _port(port)
    world.recorder.count()
    if wanted in _served and _served[wanted].world is world:  # a world that has begun anew
        return wanted
    server = _Server(("127.0.0.1", wanted), _Handler)
    server.world, server.ledger = world, Ledger(world)
    _served[int(server.server_address[1])] = server
    start_thread(threading.Thread(target=server.serve_forever, name="rankwise metrics", daemon=True))
    found = int(server.server_address[1])
    debug_log(f"serves what it counts at http://127.0.0.1:{found}/metrics")
    return found


def _port(port: int | None) -> int:
    if port is None:
        text = os.environ.get(PORT, "")
        if not (text.isascii() and text.isdigit()):
            raise ValueError(f"{PORT} is {text!r}, but must be the number of a port")
        first, own = int(text[:9]), local_rank() or 0
        port = first and first + own
        if not 0 <= port < 1 << 16:
            raise ValueError(f"{PORT} is {text}, and local rank {own} would serve at {port}; ports end at 65535")
    if not 0 <= port < 1 << 16:
        raise ValueError(f"{port} is no port: they end at 65535")
    return port


# opens: the page of metrics, where `RANKWISE_METRICS_PORT` or the program asks for it
# reached by: every process of this host, of any user
# guarded by: nothing asks who they are: the page has counts and times by rank, group, backend and operation, no
# data and no names of files; loopback only, 128 at a time, for 5 s each
# proved by: tests/plugins/watch/test_metrics.py::test_every_user_of_the_host_reads_counts_and_nothing_else
class _Server(ThreadingMixIn, HTTPServer):
    """Answers each connection on a thread of its own, so that none waits for another; a few at a time."""

    daemon_threads = True
    block_on_close = False
    world: World
    ledger: Ledger

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lock = threading.Lock()
        self._open: list[socket.socket] = []

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.lock:
            # One that says nothing gives way to the next.
            late = self._open.pop(0) if len(self._open) >= doors.PLACES else None
            self._open.append(request)
        if late is not None:
            with suppress(OSError):
                late.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.lock, suppress(ValueError):
            self._open.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up: a program's standard error is its own."""
        debug_log(f"an answer to {client_address} came to nothing: {sys.exc_info()[1]}")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = doors.PATIENCE_S

    def do_GET(self) -> None:
        """Answer."""
        if self.path.partition("?")[0] not in ("/", "/metrics"):
            self.send_error(404)
            return
        with self.server.lock:
            figures = self.server.ledger.figures()
        body = render(figures).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a program's standard error is its own."""
