"""Metrics and spans through OpenTelemetry's API, if that is installed: `pip install "rankwise[otel]"`.

`Instrumentor` is what `opentelemetry-instrument` finds by its entry point; a program of its own calls `instrument()`.
Spans are made of what the flight recorder has noted anyway, by a thread that reads it every second: no call pays for
them. Of a rank that makes more calls in a second than the recorder holds, some get no span; metrics count all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from time import monotonic_ns, time_ns
from typing import Any

from rankwise.basics.recording import Entry
from rankwise.basics.version import __version__
from rankwise.groups.world import World, current
from rankwise.metrics.stats import GroupStats, OperationStats, every_group

__all__ = ["Instrumentor", "Spans", "instrument"]

_SPANS_EVERY_S = 1.0
_COUNTERS: tuple[tuple[str, str, str, Callable[[OperationStats], float | None]], ...] = (
    ("rankwise.calls", "{call}", "Calls that have begun", lambda op: op.calls),
    ("rankwise.io", "By", "Bytes that this rank has brought to them", lambda op: op.nbytes),
    ("rankwise.time", "s", "Time in calls", lambda op: op.time_s),
    ("rankwise.waiting", "s", "Time waiting for others in calls", lambda op: op.waiting_s),
    ("rankwise.errors", "{call}", "Calls that have failed", lambda op: op.errors),
)


def instrument(spans: bool = True) -> Callable[[], None]:
    """Report this process's calls through OpenTelemetry's global providers.

    Args:
        spans: Whether each call becomes a span too.

    Returns:
        What ends it.

    Raises:
        ModuleNotFoundError: OpenTelemetry's API is not installed.
    """
    from opentelemetry import metrics, trace

    world = current()
    world.recorder.count()
    stopped = threading.Event()
    meter = metrics.get_meter("rankwise", __version__)
    for name, unit, text, value_of in _COUNTERS:
        observe = _observer(world, value_of, metrics.Observation, stopped)
        meter.create_observable_counter(name, callbacks=[observe], unit=unit, description=text)
    if not spans:
        return stopped.set
    making = Spans(trace.get_tracer("rankwise", __version__))

    def take() -> None:
        making.take([(_rank(each), entry) for each in world.worlds() for entry in _entries(each)])

    def run() -> None:
        while not stopped.wait(_SPANS_EVERY_S):
            take()

    thread = threading.Thread(target=run, name="rankwise spans", daemon=True)
    thread.start()

    def stop() -> None:
        stopped.set()
        thread.join()
        take()

    return stop


def _observer(
    world: World, value_of: Callable[[OperationStats], float | None], observation: Any, stopped: threading.Event
) -> Callable[[Any], Iterable[Any]]:
    def observe(options: Any) -> Iterator[Any]:
        for group in [] if stopped.is_set() else every_group(world):
            for op, figures in group.operations.items():
                value = value_of(figures)
                if value is not None:
                    yield observation(value, _attributes(group, op))

    return observe


def _attributes(group: GroupStats, op: str) -> dict[str, Any]:
    return {
        "rankwise.rank": group.rank,
        "rankwise.group": group.description,
        "rankwise.backend": group.backend,
        "rankwise.operation": op,
    }


def _rank(world: World) -> int:
    return -1 if world.default is None else world.default.global_rank


def _entries(world: World) -> list[Entry]:
    from rankwise.watch.recorder import entries

    return entries(world.recorder)


class Spans:
    """Makes a span of each call that has ended, once."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        #: What has had its span, of the entries that were there last time.
        self._made: set[tuple[int, bool, int]] = set()

    def take(self, noted: list[tuple[int, Entry]]) -> None:
        """Make spans of entries, each with the rank whose it is, that have ended since the last time."""
        from rankwise.watch.recorder import site

        offset_ns = time_ns() - monotonic_ns()
        made: set[tuple[int, bool, int]] = set()
        for rank, entry in noted:
            key = id(entry.trail), entry.detail is None, entry.number
            if entry.ended_ns:
                made.add(key)
                if key not in self._made:
                    file, line, function = site(entry)
                    self._make(entry, rank, offset_ns, (file, line, function))
        self._made = made

    def _make(self, entry: Entry, rank: int, offset_ns: int, place: tuple[str, int, str]) -> None:
        attributes: dict[str, Any] = {
            "rankwise.rank": rank,
            "rankwise.group": entry.trail.description,
            "rankwise.number": entry.number,
            "rankwise.nbytes": entry.nbytes,
            "code.file.path": place[0],
            "code.line.number": place[1],
            "code.function.name": place[2],
        }
        if entry.waited_ns:
            attributes["rankwise.waiting_s"] = entry.waited_ns / 1e9
        if entry.detail is not None and entry.detail[0] is not None:
            attributes["rankwise.peer"] = entry.detail[0]
        span = self._tracer.start_span(
            f"rankwise {entry.op}", start_time=entry.began_ns + offset_ns, attributes=attributes
        )
        if entry.error:
            span.add_event("exception", {"exception.message": entry.error}, entry.ended_ns + offset_ns)
        span.end(end_time=entry.ended_ns + offset_ns)


class Instrumentor:
    """What `opentelemetry-instrument` calls."""

    def __init__(self) -> None:
        self._stop: Callable[[], None] | None = None

    def instrument(self, **options: Any) -> None:
        """Begin."""
        if self._stop is None:
            self._stop = instrument()

    def uninstrument(self, **options: Any) -> None:
        """End."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()
