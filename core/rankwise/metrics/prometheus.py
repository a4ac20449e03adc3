"""What has been counted, as text that Prometheus reads, and a server for it at a loopback address."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

from rankwise.basics.debug import tell
from rankwise.groups.world import World, current
from rankwise.metrics import PORT
from rankwise.metrics.ledger import Figures, Labels, Ledger
from rankwise.metrics.stats import OperationStats

__all__ = ["render", "serve"]

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
    threading.Thread(target=server.serve_forever, name="rankwise metrics", daemon=True).start()
    found = int(server.server_address[1])
    tell(f"serves what it counts at http://127.0.0.1:{found}/metrics")
    return found


def _port(port: int | None) -> int:
    if port is None:
        text = os.environ.get(PORT, "")
        if not (text.isascii() and text.isdigit()):
            raise ValueError(f"{PORT} is {text!r}, but must be the number of a port")
        port = int(text) and int(text) + int(os.environ.get("LOCAL_RANK", "0"))
    if not 0 <= port < 1 << 16:
        raise ValueError(f"{port} is no port")
    return port


class _Server(HTTPServer):
    world: World
    ledger: Ledger


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        """Answer."""
        if self.path.partition("?")[0] not in ("/", "/metrics"):
            self.send_error(404)
            return
        body = render(self.server.ledger.figures()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a program's standard error is its own."""
