"""What is counted of each call, and how it is told to others."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from importlib.metadata import requires
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.processes import wait_until
from tests.threads import run_local

import rankwise as dist
from rankwise.basics import native
from rankwise.basics.recording import FlightRecorder, Totals, Trail, make_recorder
from rankwise.groups.world import current
from rankwise_network import doors
from rankwise_testing import run_ranks
from rankwise_tools.exporters import otel, prometheus
from rankwise_tools.exporters.ledger import figures_of
from rankwise_watch import serve_prometheus, window
from rankwise_watch.noting import PythonRecorder
from rankwise_watch.sampling import sample
from rankwise_watch.stats import GroupStats, OperationStats

PATIENCE_S = 10.0

CAPACITY = 16
ARRAY = np.ones(4, np.float32)


@pytest.fixture(params=["python", "compiled"])
def recorder(request: pytest.FixtureRequest) -> FlightRecorder:
    if request.param == "python":
        return PythonRecorder(CAPACITY)
    if native.module() is None:
        pytest.skip("rankwise-native is not installed")
    return make_recorder(CAPACITY)


def call(trail: Trail, op: str = "all_reduce", waited_ns: int = 0) -> None:
    def shortcut() -> None:
        trail.begin(op, ARRAY)

    def public() -> None:
        shortcut()

    public()
    if waited_ns:
        trail.waited(waited_ns)


def call_often(trail: Trail, count: int) -> None:
    for _ in range(count):
        call(trail)
        trail.end()


def totals(trail: Trail) -> dict[str, Totals]:
    return {op: Totals(*sums) for op, sums in trail.totals().items()}


# ---------------------------------------------------------------------- recorders


@pytest.mark.parametrize("calls", [1, CAPACITY, 100 * CAPACITY])
def test_sums_are_of_all_calls_however_many_have_left_the_ring(recorder: FlightRecorder, calls: int) -> None:
    recorder.count()
    trails = [recorder.trail(name, name, (0, 1)) for name in ("one", "two")]
    for number in range(calls):
        for trail in trails:
            call(trail, "all_reduce" if number % 3 else "broadcast", waited_ns=7)
            trail.end()
    for trail in trails:
        found = totals(trail)
        assert sum(each.begun for each in found.values()) == calls
        assert sum(each.ended for each in found.values()) == calls
        assert sum(each.nbytes for each in found.values()) == calls * ARRAY.nbytes
        assert sum(each.waited_ns for each in found.values()) == 7 * calls
        assert all(each.busy_ns > 0 and not each.failed for each in found.values())
        assert found["broadcast"].begun == -(-calls // 3)


def test_what_ends_after_it_has_left_the_ring_counts_too(recorder: FlightRecorder) -> None:
    recorder.count()
    trail = recorder.trail("one", "one", (0, 1))
    tickets = []
    for _ in range(3):
        call(trail, "broadcast")
        tickets.append(trail.issued())
    call_often(trail, 100 * CAPACITY)
    assert totals(trail)["broadcast"][:3] == (3, 0, 0)
    trail.ended(tickets[0])
    trail.ended(tickets[1], ValueError("no"))
    assert totals(trail)["broadcast"][:3] == (3, 1, 1)
    assert totals(trail)["broadcast"][:3] == (3, 1, 1), "reading changes nothing"


def test_failures_are_counted_once(recorder: FlightRecorder) -> None:
    recorder.count()
    trail = recorder.trail("one", "one", (0, 1))
    call(trail)
    trail.broken(ValueError("no"))
    trail.broken(ValueError("and again"))
    call(trail)
    trail.end()
    ticket = trail.begin_message("send", ARRAY, 1, 0)
    trail.ended(ticket, ValueError("no"))
    assert totals(trail)["all_reduce"][:3] == (2, 1, 1)
    assert totals(trail)["send"][:3] == (1, 0, 1)
    assert recorder.entries()[0].error == "ValueError: no"


def test_waits_belong_to_the_last_collective_or_message(recorder: FlightRecorder) -> None:
    trail = recorder.trail("one", "one", (0, 1))
    trail.waited(5)  # nothing has begun
    call(trail)
    ticket = trail.begin_message("recv", ARRAY, 1, 0)
    trail.waited(3, True)
    trail.waited(4, False)
    trail.ended(ticket)
    trail.end()
    assert [entry.waited_ns for entry in recorder.entries()] == [4, 3]
    assert (totals(trail)["recv"].waited_ns, totals(trail)["all_reduce"].waited_ns) == (3, 4)


def test_waits_belong_to_the_message_that_the_program_has_asked_for_last(recorder: FlightRecorder) -> None:
    trail = recorder.trail("one", "one", (0, 1))
    first, second = (trail.begin_message("irecv", ARRAY, 1, tag) for tag in range(2))
    for ticket in (first, second):
        trail.released(ticket)
    trail.asked(first)
    trail.waited(3, True)
    trail.ended(first, source=1)
    trail.asked(second)
    trail.waited(4, True)
    third = trail.begin_message("send", ARRAY, 1, 0)
    trail.waited(5, True)
    trail.asked(first)  # it has ended: nobody waits for it
    trail.waited(6, True)
    trail.ended(third)
    found = recorder.entries()
    assert [entry.waited_ns for entry in found] == [3, 4, 11]
    assert [bool(entry.asked_ns) for entry in found] == [True, True, False]
    assert found[0].began_ns <= found[0].asked_ns <= found[0].ended_ns <= found[1].asked_ns
    assert totals(trail)["irecv"].waited_ns == 3, "the other has not ended"


def test_threads_lose_no_count(recorder: FlightRecorder) -> None:
    recorder.count()
    trails = [recorder.trail(str(i), str(i), (0,)) for i in range(4)]

    with ThreadPoolExecutor(len(trails)) as threads:
        running = [threads.submit(call_often, trail, 2000) for trail in trails]
        for _ in range(20):
            assert all(each.ended <= each.begun for trail in trails for each in totals(trail).values())
        assert [each.result(PATIENCE_S) for each in running] == [None] * 4
    assert [totals(trail)["all_reduce"][:2] for trail in trails] == [(2000, 2000)] * 4


def test_counting_begun_late_says_what_it_has_missed() -> None:
    recorder = PythonRecorder(CAPACITY)
    trail = recorder.trail("one", "one", (0,))
    call_often(trail, 1000)
    seen = totals(trail)["all_reduce"].begun
    assert CAPACITY <= seen < 1000
    recorder.count()
    call_often(trail, 1000)
    assert totals(trail)["all_reduce"].begun == seen + 1000


# ---------------------------------------------------------------------- dist.stats


def counted() -> GroupStats:
    dist.stats()
    array = np.ones(8, np.float32)
    for _ in range(3):
        dist.all_reduce(array)
    dist.broadcast(array, 0)
    if dist.get_rank() == 0:
        dist.send(array, 1)
    else:
        dist.recv(array, 0)
    dist.all_reduce(array, async_op=True).wait()  # type: ignore[union-attr]
    with pytest.raises(dist.CollectiveMismatchError):
        dist.broadcast(array, dist.get_rank())
    return dist.stats()


def test_stats_of_a_group() -> None:
    for rank, told in enumerate(run_local(2, counted)):
        assert (told.group, told.ranks, told.uncounted) == ("default", (0, 1), 0)
        found = told.operations
        assert (found["all_reduce"].calls, found["all_reduce"].nbytes) == (4, 4 * 32)
        assert found["all_reduce"].time_s > 0
        assert (found["broadcast"].calls, found["broadcast"].errors) == (2, 1)
        assert ("send" in found, "recv" in found) == (rank == 0, rank == 1)
        assert found["all_reduce"].waiting_s is None, "the local backend cannot tell"


def test_stats_needs_a_group() -> None:
    with pytest.raises(ValueError, match="no default process group"):
        dist.stats()


def on_two_ranks(program: Callable[..., Any], transport: str, compiled_parts: str) -> list[Any]:
    """Run a program on two ranks of gloo, of which stats are kept."""
    pytest.importorskip("rankwise_gloo_tcp")
    env = {"RANKWISE_GLOO_TRANSPORT": transport, "RANKWISE_NATIVE": compiled_parts, "RANKWISE_STATS": "on"}
    return run_ranks(program, 2, env=env)


def late() -> GroupStats:
    dist.init_process_group("gloo")
    array = np.ones(8, np.float32)
    event = threading.Event()
    for _ in range(5):
        if dist.get_rank() == 1:
            event.wait(0.1)
        dist.all_reduce(array)
    told = dist.stats()
    dist.destroy_process_group()
    return told


@pytest.mark.parametrize("transport", ["shm", "tcp"])
@pytest.mark.parametrize("compiled_parts", ["on", "off"])
def test_gloo_tells_how_long_it_waits_for_others(transport: str, compiled_parts: str) -> None:
    punctual, tardy = (told.operations["all_reduce"] for told in on_two_ranks(late, transport, compiled_parts))
    assert 0.3 < punctual.waiting_s <= punctual.time_s
    assert tardy.waiting_s < punctual.waiting_s / 2


def late_messages() -> tuple[GroupStats, int, str]:
    """Receive what comes late, what is long, and what does not come; return also the bytes that were copied once."""
    dist.init_process_group("gloo", timeout=60)
    array, large = np.ones(8, np.float32), np.ones(1 << 20, np.uint8)
    event = threading.Event()
    for what, late_s in [(array, 0.1)] * 5 + [(large, 0.0)] * 3:
        if dist.get_rank() == 0:
            dist.recv(what, 1)
        else:
            event.wait(late_s)
            dist.send(what, 0)
    error = ""
    if dist.get_rank() == 0:
        dist.group.WORLD.set_timeout(2.0)
        with pytest.raises(dist.DistTimeoutError):
            dist.recv(array, 1)
        error = dist.group.WORLD.world.recorder.entries()[-1].error
        dist.group.WORLD.get_group_store().set("late", b"enough")
    else:
        dist.group.WORLD.get_group_store().get("late", timeout=60)
    told = dist.stats()
    moved = dist.group.WORLD.communicators()[0].gauges().moved_nbytes
    dist.destroy_process_group()
    return told, moved.get("copy", 0), error


@pytest.mark.parametrize("compiled_parts", ["on", "off"])
def test_messages_are_counted_with_their_waits_and_errors(compiled_parts: str) -> None:
    (receiver, copied, error), (sender, _, _) = on_two_ranks(late_messages, "shm", compiled_parts)
    got, sent = receiver.operations["recv"], sender.operations["send"]
    assert (sent.calls, sent.nbytes, sent.errors) == (8, 5 * 32 + 3 * (1 << 20), 0)
    assert (got.calls, got.errors) == (9, 1)
    assert error.startswith("DistTimeoutError: ")
    assert 0.3 < got.waiting_s <= got.time_s
    assert sent.waiting_s < got.waiting_s / 2
    assert copied in (0, 3 << 20)  # nothing where no process may read another's memory


def begin_alone() -> None:
    dist.init_process_group("local", store=dist.HashStore(), rank=0, world_size=1)


# ---------------------------------------------------------------------- Prometheus

OPERATIONS = {"all_reduce": OperationStats(3, 48, 0.5, None, 1), "send": OperationStats()}
FIGURES = GroupStats("group-1", 3, 'pair "a"\\b', "gloo", (0, 1), OPERATIONS)
LINE = re.compile(r'^[a-z_]+\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)+\} [0-9.e+-]+$')


def test_prometheus_text() -> None:
    text = prometheus.render(figures_of([FIGURES]))
    labels = 'rank="3",group="pair \\"a\\"\\\\b",backend="gloo",operation="all_reduce"'
    assert f"rankwise_calls_total{{{labels}}} 3\n" in text
    assert f"rankwise_seconds_total{{{labels}}} 0.5\n" in text
    assert f"rankwise_waiting_seconds_total{{{labels}}}" not in text, "nobody knows"
    for line in text.splitlines():
        told = ("# HELP rankwise_", "# TYPE rankwise_", f"# {prometheus.PUBLIC}")
        assert line.startswith(told) or LINE.match(line), line


def get(port: int, path: str = "/metrics") -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def test_prometheus_is_served_at_loopback() -> None:
    begin_alone()
    port = serve_prometheus(0)
    dist.all_reduce(np.ones(2))
    assert 'operation="all_reduce"} 1\n' in get(port)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(port, "/secret")


def as_nobody(ask: Callable[[], str]) -> str:
    """Return what a process of another user is told."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(there, ask().encode())
        os._exit(0)
    os.close(there)
    with open(here, encoding="utf-8") as told:
        text = told.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_every_user_of_the_host_reads_counts_and_nothing_else() -> None:
    begin_alone()
    port = serve_prometheus(0)
    dist.all_reduce(np.ones(2))
    first, *lines = as_nobody(lambda: get(port)).strip().splitlines()
    assert first == f"# {prometheus.PUBLIC}"
    sample = re.compile(
        r"rankwise_(calls|bytes|seconds|waiting_seconds|errors)_total"
        r'\{rank="\d+",group="\w+",backend="\w+",operation="\w+"\} [\d.e-]+'
    )
    assert [line for line in lines if not line.startswith("# ") and not sample.fullmatch(line)] == []
    assert any(line.startswith("rankwise_calls_total{") for line in lines)


def test_those_who_say_nothing_or_hang_up_keep_nobody_from_scraping(capfd: pytest.CaptureFixture[str]) -> None:
    begin_alone()
    port = serve_prometheus(0)
    with ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port)) as rude:
                rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                rude.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert "rankwise_calls_total" in get(port)
        assert wait_until(lambda: sum(thread.name.startswith("Thread-") for thread in threading.enumerate()) < 40, 30)
    assert "rankwise_calls_total" in get(port)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("port", "local"), [("70000", "0"), ("65535", "1"), ("9" * 50, "0")])
def test_a_port_that_is_none_is_named_with_its_variable(port: str, local: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKWISE_METRICS_PORT", port)
    monkeypatch.setenv("LOCAL_RANK", local)
    with pytest.raises(ValueError, match=f"RANKWISE_METRICS_PORT is {port}, and local rank {local} would serve at"):
        serve_prometheus()


def test_a_variable_has_every_rank_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKWISE_METRICS_PORT", "9400")
    monkeypatch.setenv("LOCAL_RANK", "3")
    server = Mock(side_effect=InterruptedError)  # none is started
    monkeypatch.setattr(prometheus, "_Server", server)
    with suppress(InterruptedError):
        begin_alone()
    assert server.call_args.args[0] == ("127.0.0.1", 9403)
    monkeypatch.setenv("RANKWISE_METRICS_PORT", "many")
    with pytest.raises(ValueError, match="RANKWISE_METRICS_PORT is 'many'"):
        serve_prometheus()


def test_a_port_that_is_taken_ends_no_job_and_an_own_one_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("RANKWISE_METRICS_PORT", str(taken.getsockname()[1]))
        begin_alone()
        assert "the figures of this rank are not served" in caplog.text
    port = serve_prometheus(0)
    monkeypatch.setenv("RANKWISE_METRICS_PORT", str(port))
    dist.destroy_process_group()
    caplog.clear()
    begin_alone()
    dist.all_reduce(np.ones(2))
    assert 'operation="all_reduce"} 1\n' in get(port)
    assert caplog.text == ""


# ---------------------------------------------------------------------- OpenTelemetry


Told = dict[tuple[str, str], float]


class Taken:
    """What has reached the real SDK of OpenTelemetry."""

    def __init__(self) -> None:
        self.reader, self.exporter = InMemoryMetricReader(), InMemorySpanExporter()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.providers: dict[str, Any] = {
            "meter_provider": MeterProvider([self.reader], shutdown_on_exit=False),
            "tracer_provider": tracers,
        }

    def counted(self) -> Told:
        """Return the value of each counter and operation."""
        found: Told = {}
        for of_resource in getattr(self.reader.get_metrics_data(), "resource_metrics", ()):
            for metric in of_resource.scope_metrics[0].metrics:
                assert metric.data.is_monotonic
                for point in metric.data.data_points:
                    assert point.attributes["rankwise.rank"] == 0
                    assert point.attributes["rankwise.group"] == "default"
                    found[metric.name, point.attributes["rankwise.operation"]] = point.value
        return found

    def spans(self) -> list[tuple[str, int]]:
        """Return name and number of each span."""
        return [(span.name, span.attributes["rankwise.number"]) for span in self.exporter.get_finished_spans()]


def test_without_opentelemetry_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ModuleNotFoundError, match=r"otel\.instrument needs .*: pip install") as caught:
        otel.instrument()
    name, extra = re.findall(r"install '(.*)\[(.*)\]'", str(caught.value))[0]
    wanted = requires(name) or []
    assert any(f'extra == "{extra}"' in each.replace("'", '"') for each in wanted), wanted
    assert caught.value.__suppress_context__


def test_opentelemetry_gets_counters_and_spans() -> None:
    taken, instrumentor = Taken(), otel.Instrumentor()
    begin_alone()
    dist.barrier()
    instrumentor.instrument(**taken.providers)
    instrumentor.instrument(**taken.providers)
    otel.instrument(**taken.providers)
    for _ in range(2):
        dist.all_reduce(np.ones(2))
    told = taken.counted()
    assert told["rankwise.calls", "all_reduce"] == 2
    assert told["rankwise.io", "all_reduce"] == 32
    assert told["rankwise.time", "all_reduce"] > 0
    assert told["rankwise.errors", "all_reduce"] == 0
    assert ("rankwise.waiting", "all_reduce") not in told, "nobody knows"
    instrumentor.uninstrument()
    # Two collectives came after the barrier, which had ended before; each has one span, although three have asked.
    assert taken.spans() == [("rankwise all_reduce", 1), ("rankwise all_reduce", 2)]
    for span in taken.exporter.get_finished_spans():
        assert 0 < span.start_time <= span.end_time <= time.time_ns()
        assert span.attributes["code.file.path"] == __file__
        assert span.status.is_unset
    assert taken.counted() == {}, "it has been ended"


def test_opentelemetry_can_be_ended_and_begun_again() -> None:
    taken = Taken()
    begin_alone()
    for number in range(2):
        end = otel.instrument(**taken.providers)
        dist.all_reduce(np.ones(2))
        assert taken.counted()["rankwise.calls", "all_reduce"] == number + 1
        end()
        end()
        assert taken.counted() == {}
    assert taken.spans() == [("rankwise all_reduce", 0), ("rankwise all_reduce", 1)]


def test_what_a_group_has_done_last_is_reported_although_it_is_gone() -> None:
    taken = Taken()
    end = otel.instrument(**taken.providers)
    for life in range(1, 3):
        begin_alone()
        pair = dist.new_group([0], group_desc="default")  # what looks alike from outside is one figure
        dist.all_reduce(np.ones(2), group=pair)
        dist.destroy_process_group(pair)
        dist.all_reduce(np.ones(2))
        assert taken.counted()["rankwise.calls", "all_reduce"] == 2 * life
        dist.destroy_process_group()
        assert taken.counted()["rankwise.calls", "all_reduce"] == 2 * life
        assert len(taken.spans()) == 2 * life
    end()


def test_trouble_of_the_monitoring_ends_no_job(caplog: pytest.LogCaptureFixture) -> None:
    begin_alone()

    def refuse(groups: Any) -> None:
        raise RuntimeError("no disk")

    current().on_leaving.append(refuse)
    dist.destroy_process_group()
    assert "the last figures of a group are not reported: RuntimeError('no disk')" in caplog.text
    assert not dist.is_initialized()


def test_spans_are_made_once_and_tell_failures() -> None:
    recorder = PythonRecorder()
    trail = recorder.trail("one", "one", (0,))
    taken = Taken()
    spans = otel.Spans(taken.providers["tracer_provider"].get_tracer("test"))
    call(trail)
    spans.take([(0, entry) for entry in recorder.entries()])
    assert taken.spans() == [], "it has not ended"
    trail.broken(ValueError("no"))
    for _ in range(3):
        spans.take([(0, entry) for entry in recorder.entries()])
    (span,) = taken.exporter.get_finished_spans()
    assert (span.status.status_code.name, span.status.description) == ("ERROR", "ValueError: no")
    (event,) = span.events
    assert dict(event.attributes) == {"exception.type": "ValueError", "exception.message": "no"}


def look_from_outside() -> list[dict[str, Any]]:
    """Ask all ranks of this machine that have a window, as somebody else would."""
    with open("/proc/net/unix") as file:
        names = sorted(set(re.findall(rf"@({window.NAME}\S+)", file.read())))
    found = []
    for name in names:
        # Those of other jobs may end this moment.
        with suppress(OSError, struct.error), socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(2)
            sock.connect("\0" + name)
            for _ in range(2):
                sock.send(b"?")
                (length,) = struct.unpack("<I", sock.recv(4, socket.MSG_WAITALL))
                found.append(json.loads(sock.recv(length, socket.MSG_WAITALL)))
    return found


def some_calls() -> tuple[str, list[dict[str, Any]]]:
    dist.init_process_group("gloo")
    for _ in range(4):
        dist.all_reduce(np.ones(2))
    job = sample(current())["job"]
    seen: list[dict[str, Any]] = []
    until = time.monotonic() + 30
    # A window opens a moment after the group is there.
    while dist.get_rank() == 0 and len(seen) < 4 and time.monotonic() < until:
        seen = [each for each in look_from_outside() if each["job"] == job]
    dist.barrier()
    dist.destroy_process_group()
    return job, seen


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names of sockets are files elsewhere")
def test_others_see_each_rank_through_its_window() -> None:
    pytest.importorskip("rankwise_gloo_tcp")
    (job, seen), (same, _) = run_ranks(some_calls, 2)
    assert job == same
    assert sorted(each["rank"] for each in seen) == [0, 0, 1, 1]
    for each in seen:
        assert (each["ranks"], each["outside"]) == ([0, 1], "")
        group = each["groups"]["default"]
        assert group["operations"]["all_reduce"][0] >= 4
        assert [op for op, *_ in group["arrivals"]].count("all_reduce") >= 4
        assert each["memory_nbytes"] > 1 << 20


def test_a_stranger_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert doors.is_own_user(ours)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert doors.is_own_user(ours) == (os.getuid() == 0), "root may always look"
