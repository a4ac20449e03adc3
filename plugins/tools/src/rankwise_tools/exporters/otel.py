"""Metrics and spans through OpenTelemetry's API, if that is installed: `pip install "rankwise[otel]"`.

`Instrumentor` is what `opentelemetry-instrument` finds by its entry point; a program of its own calls `instrument()`.
Spans are made of what the flight recorder has noted anyway, by a thread that reads it every second: no call pays for
them. Of a rank that makes more calls in a second than the recorder holds, some get no span; metrics count all.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable, Iterator
from time import monotonic_ns, time_ns
from typing import Any

from rankwise.backends import start_thread
from rankwise.launching import Entry, World, __version__, current
from rankwise_tools.exporters.ledger import Labels, Ledger
from rankwise_watch.reading import OperationStats

__all__ = ["Instrumentor", "Spans", "instrument"]

_SPANS_EVERY_S = 1.0
_COUNTERS: tuple[tuple[str, str, str, Callable[[OperationStats], float | None]], ...] = (
    ("rankwise.calls", "{call}", "Calls that have begun", lambda op: op.calls),
    ("rankwise.io", "By", "Bytes that this rank has brought to them", lambda op: op.nbytes),
    ("rankwise.time", "s", "Time in calls", lambda op: op.time_s),
    ("rankwise.waiting", "s", "Time waiting for others in calls", lambda op: op.waiting_s),
    ("rankwise.errors", "{call}", "Calls that have failed", lambda op: op.errors),
)


def instrument(spans: bool = True, *, meter_provider: Any = None, tracer_provider: Any = None) -> Callable[[], None]:
    """Report this process's calls through OpenTelemetry.

    Args:
        spans: Whether each call that begins from now on becomes a span too.
        meter_provider: Who takes the metrics; None is the global provider.
        tracer_provider: Who takes the spans; None is the global provider.

    Returns:
        What ends it.

    Raises:
        ModuleNotFoundError: OpenTelemetry's API is not installed.
    """
    try:
        from opentelemetry import metrics, trace
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "otel.instrument needs OpenTelemetry's API: pip install 'rankwise[otel]'", name=error.name
        ) from None

    world = current()
    report = next((each for each in _reports if each.world is world), None)
    if report is None:
        tracer = trace.get_tracer("rankwise", __version__, tracer_provider) if spans else None
        report = _Report(world, tracer)
        report.begin()
    meter = metrics.get_meter("rankwise", __version__, meter_provider)
    for name, unit, text, value_of in _COUNTERS:
        # The SDK makes an instrument once, and keeps the first callbacks: they must serve later readers too.
        meter.create_observable_counter(name, callbacks=[_observer(value_of)], unit=unit, description=text)
    return report.end


class _Report:
    """What is reported of one world, from `begin` to `end`."""

    def __init__(self, world: World, tracer: Any) -> None:
        self.world = world
        self.ledger = Ledger(world)
        self._spans = None if tracer is None else Spans(tracer)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankwise spans", daemon=True)

    def begin(self) -> None:
        """Count, and make spans now and then."""
        for each in self.world.worlds():
            each.recorder.count()
        _reports.append(self)
        if self._spans is not None:
            self._spans.leave_out(self._noted())
            # The recorder forgets with the groups, and the process ends: neither waits for the next time.
            self.world.on_leaving.append(self._leave)
            atexit.register(self._take)
            start_thread(self._thread)

    def end(self) -> None:
        """Report no more; once more does nothing."""
        if self not in _reports:
            return
        _reports.remove(self)
        self.ledger.close()
        self._ended.set()
        if self._spans is not None:
            atexit.unregister(self._take)
            self.world.on_leaving.remove(self._leave)
            self._thread.join()
            self._take()

    def _run(self) -> None:
        while not self._ended.wait(_SPANS_EVERY_S):
            self._take()

    def _leave(self, groups: Any) -> None:
        self._take()

    def _take(self) -> None:
        assert self._spans is not None
        self._spans.take(self._noted())

    def _noted(self) -> list[tuple[int, Entry]]:
        return [(_rank(each), entry) for each in self.world.worlds() for entry in _entries(each)]


#: What is reported now; a process has one, and a thread that is a rank of `local_world` one of its own.
_reports: list[_Report] = []


def _observer(value_of: Callable[[OperationStats], float | None]) -> Callable[[Any], Iterable[Any]]:
    from opentelemetry.metrics import Observation

    def observe(options: Any) -> Iterator[Any]:
        for report in list(_reports):
            for labels, figures in report.ledger.figures().items():
                value = value_of(figures)
                if value is not None:
                    yield Observation(value, _attributes(labels))

    return observe


def _attributes(labels: Labels) -> dict[str, Any]:
    return {f"rankwise.{name}": value for name, value in labels._asdict().items()}


def _rank(world: World) -> int:
    return -1 if world.default is None else world.default.global_rank


def _entries(world: World) -> list[Entry]:
    from rankwise_watch.reading import entries

    return entries(world.recorder)


class Spans:
    """Makes a span of each call that has ended, once."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._lock = threading.Lock()
        #: What has had its span, of the entries that were there last time.
        self._made: set[tuple[int, bool, int, int]] = set()

    def leave_out(self, noted: list[tuple[int, Entry]]) -> None:
        """Make no spans of these entries, as far as they have ended."""
        with self._lock:
            self._made = {_key(entry) for _, entry in noted if entry.ended_ns}

    def take(self, noted: list[tuple[int, Entry]]) -> None:
        """Make spans of entries, each with the rank whose it is, that have ended since the last time."""
        offset_ns = time_ns() - monotonic_ns()
        with self._lock:
            for rank, entry in noted:
                if entry.ended_ns and _key(entry) not in self._made:
                    self._make(entry, rank, offset_ns)
            self._made = {_key(entry) for _, entry in noted if entry.ended_ns}

    def _make(self, entry: Entry, rank: int, offset_ns: int) -> None:
        from opentelemetry.trace import Status, StatusCode

        from rankwise_watch.reading import site

        file, line, function = site(entry)
        attributes: dict[str, Any] = {
            "rankwise.rank": rank,
            "rankwise.group": entry.trail.description,
            "rankwise.operation": entry.op,
            "rankwise.number": entry.number,
            "rankwise.nbytes": entry.nbytes,
            "code.file.path": file,
            "code.line.number": line,
            "code.function.name": function,
        }
        if entry.waited_ns:
            attributes["rankwise.waiting_s"] = entry.waited_ns / 1e9
        if entry.detail is not None and entry.detail[0] is not None:
            attributes["rankwise.peer"] = entry.detail[0]
        span = self._tracer.start_span(
            f"rankwise {entry.op}", start_time=entry.began_ns + offset_ns, attributes=attributes
        )
        if entry.error:
            kind, _, text = entry.error.partition(": ")
            told = {"exception.type": kind, "exception.message": text}
            span.add_event("exception", told, entry.ended_ns + offset_ns)
            span.set_status(Status(StatusCode.ERROR, entry.error))
        span.end(end_time=entry.ended_ns + offset_ns)


def _key(entry: Entry) -> tuple[int, bool, int, int]:
    # A trail's place in memory may be that of one before it; no two of them began a call at one moment.
    return id(entry.trail), entry.detail is None, entry.number, entry.began_ns


class Instrumentor:
    """What `opentelemetry-instrument` calls."""

    def __init__(self) -> None:
        self._stop: Callable[[], None] | None = None

    def instrument(self, *, meter_provider: Any = None, tracer_provider: Any = None, **options: Any) -> None:
        """Begin."""
        if self._stop is None:
            self._stop = instrument(meter_provider=meter_provider, tracer_provider=tracer_provider)

    def uninstrument(self, **options: Any) -> None:
        """End."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()
