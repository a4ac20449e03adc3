"""The records of all ranks: read, judged, and put on one timeline."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.command_line import run_here
from tests.threads import run_local

import rankwise as dist
from rankwise.cli import main
from rankwise_testing import RankPool
from rankwise_tools.recordings.analysis import analyse, findings
from rankwise_tools.recordings.clocks import Clock
from rankwise_tools.recordings.records import Record, TraceError, load, parse
from rankwise_tools.timelines.aligned import aligned
from rankwise_tools.timelines.page import page
from rankwise_tools.timelines.perfetto import timeline

PATIENCE_S = 60.0

Trace = Callable[..., tuple[object, str, str]]

MS = 1_000_000
WRITTEN = 10_000 * MS


def op(name: str, number: int, state: str = "done", **more: Any) -> dict[str, Any]:
    """Return an operation that began at second `number` and took a millisecond, at line 100 + number."""
    began = more.pop("began_ns", number * 1000 * MS)
    array = {"nbytes": 0, "dtype": None} if name == "barrier" else {"nbytes": 4096, "dtype": "float32"}
    place = {"file": "/home/me/train.py", "line": 100 + number, "function": "step", "thread": 1}
    times = {"began_ns": began, "ended_ns": began + MS if state == "done" else 0}
    return {"group": "default", "op": name, "number": number, "state": state, **array, **place, **times, **more}


def message(name: str, number: int, peer: int | None, state: str = "done", **more: Any) -> dict[str, Any]:
    return op(name, number, state, peer=peer, tag=0, **more)


def told(rank: int, *operations: dict[str, Any], size: int = 3, **more: Any) -> dict[str, Any]:
    """Return what a rank's file holds."""
    names: dict[str, list[dict[str, Any]]] = defaultdict(list, default=[])
    for each in operations:
        names[each["group"]].append(each)
    groups = {
        name: {
            "description": "default" if name == "default" else f"the {name} group",
            "ranks": list(range(min(size, 8))),
            "failure": "",
            "begun": max((o["number"] for o in ops if "tag" not in o), default=-1),
            "finished": max((o["number"] for o in ops if "tag" not in o and o["state"] == "done"), default=-1),
        }
        for name, ops in names.items()
    }
    frame = {"file": "/home/me/data.py", "line": 88, "function": "load"}
    place = {"rank": rank, "world_size": size, "pid": 1000 + rank, "host": "one", "boot": "first"}
    record = {"rankwise_trace": 1, "version": "0.1.0", "reason": "SIGUSR1", "written_ns": WRITTEN, "clock_offset_ns": 0}
    threads = [{"thread": 1, "name": "MainThread", "stack": [frame]}]
    return {**record, **place, "groups": groups, "entries": list(operations), "threads": threads, **more}


def records(*each: dict[str, Any]) -> dict[int, Record]:
    return {record.rank: record for record in map(parse, each)}


STEPS = [op("all_reduce", 0), op("broadcast", 1)]


# ---------------------------------------------------------------------- which rank made another call


@pytest.mark.parametrize(
    ("by_rank", "words"),
    [
        (
            [told(rank, *STEPS) for rank in range(3)],
            "^All ranks made the same calls up to broadcast #1 on group 'default', and none waits for another.$",
        ),
        ([told(rank) for rank in range(3)], "All ranks made the same calls, and"),
        ([told(rank, *STEPS) for rank in (0, 2)], "There is no record of rank 1.$"),
        ([told(rank, op("all_reduce", 0, "issued", thread=0), op("barrier", 1)) for rank in range(3)], ""),
    ],
    ids=["all fine", "nothing done", "all but a record", "asynchronous calls that nobody waits for"],
)
def test_where_all_made_the_same_calls_nothing_is_found(by_rank: list[dict[str, Any]], words: str) -> None:
    assert findings(records(*by_rank)) == []
    assert re.search(words, analyse(records(*by_rank)))


def barriers(last: int, *more: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what is left in a ring whose last barrier has a number."""
    return [*(op("barrier", n, began_ns=n) for n in range(last - 5, last)), *more]


FALLEN = told(0, *STEPS, op("all_reduce", 2, "failed"))
FALLEN["groups"]["default"]["failure"] = "PeerDiedError: rank 1 on one has died: killed by SIGKILL"
STUCK = [*STEPS, op("all_reduce", 2, "running")]
PUSHED_OUT = barriers(5000, op("all_reduce", 5000, "running", began_ns=5000))
WAITED_FOR = (
    "Group 'default': rank 1 never called all_reduce #2. Ranks 0 and 2 were in "
    "all_reduce #2 at train.py:102 for 8.0 s. What rank 1 did last on this group was broadcast #1 at train.py:101; "
)

#: What the ranks have told, the kind of what is found, at whom, and what is said of that: all of it, or parts.
FOUND: dict[str, tuple[list[dict[str, Any]], str, tuple[int, ...], str | list[str]]] = {
    "a straggler": (
        [told(0, *STUCK), told(1, *STEPS), told(2, *STUCK)],
        *("behind", (1,), WAITED_FOR + "its main thread was at data.py:88 in load."),
    ),
    "a rank that has ended too early": (
        [told(0, *STUCK), told(1, *STEPS, reason="the process ended"), told(2, *STUCK)],
        *("behind", (1,), WAITED_FOR + "it had left by then."),
    ),
    "a rank that has never called anything": (
        [told(0, op("barrier", 0, "running")), told(1), told(2, op("barrier", 0, "failed"))],
        *("behind", (1,)),
        [
            "rank 1 never called barrier #0",
            "Rank 0 was in barrier #0 at train.py:100 for 10.0 s and rank 2 failed in barrier #0",
            "What rank 1 did on this group was nothing yet",
        ],
    ),
    "several stragglers": (
        [told(0, *STEPS, op("barrier", 2, "running")), told(1, *STEPS), told(2, *STEPS)],
        *("behind", (1, 2), ["ranks 1 and 2 never called barrier #2"]),
    ),
    "the furthest behind": (
        [
            told(0, *STEPS, op("barrier", 2, "running")),
            told(1, op("all_reduce", 0), op("broadcast", 1, "running")),
            told(2, op("all_reduce", 0)),
        ],
        *("behind", (2,), ["never called broadcast #1"]),
    ),
    "a straggler of which the ring was overwritten": (
        [told(0, *PUSHED_OUT), told(1, *barriers(20)), told(2, *PUSHED_OUT)],
        *("behind", (1,), ["What rank 1 did last on this group was barrier #19"]),
    ),
    "another call than that of the rest": (
        [
            *(told(rank, *STEPS, op("all_reduce", 2, "failed")) for rank in (0, 1)),
            told(2, *STEPS, op("broadcast", 2, "failed", line=55)),
        ],
        *("mismatch", (2,)),
        "Group 'default': rank 2 made another call than the rest: as #2, rank 2 called broadcast of 4096 bytes of "
        "float32 at train.py:55, while ranks 0 and 1 called all_reduce of 4096 bytes of float32 at train.py:102.",
    ),
    "two ranks that differ, of which neither is to blame": (
        [told(0, op("barrier", 0, "failed"), size=2), told(1, op("all_reduce", 0, "failed"), size=2)],
        *("mismatch", (), ["the ranks made different calls: as #0", "rank 0 called barrier at train.py:100"]),
    ),
    "a dead rank, which has no record": (
        [FALLEN, told(2, *STUCK)],
        *("missing", (1,)),
        "Group 'default': there is no record of rank 1, which died, was killed, or could not write one; rank 0 failed "
        "in all_reduce #2 at train.py:102 and rank 2 was in all_reduce #2 at train.py:102 for 8.0 s. "
        "The group ended with PeerDiedError: rank 1 on one has died: killed by SIGKILL.",
    ),
    "a call in which all are and none is done": (
        [told(rank, op("all_reduce", 0, "running")) for rank in range(3)],
        *("stuck", ()),
        [
            "all ranks have begun all_reduce of 4096 bytes of float32 #0, but ranks 0, 1 and 2 were in "
            "all_reduce #0 at train.py:100 for 10.0 s"
        ],
    ),
    "a message that nobody has sent": (
        [
            told(0, message("recv", 0, 1), message("recv", 1, 1, "running"), size=2),
            told(1, message("send", 0, 0), size=2),
        ],
        *("message", (1,)),
        "Group 'default': rank 0 was in recv #1 from rank 1 at train.py:101 for 9.0 s; rank 1 has sent 1 of the 2 that "
        "rank 0 has begun to receive, and its main thread was at data.py:88 in load.",
    ),
}


@pytest.mark.parametrize("what", FOUND)
def test_what_keeps_ranks_from_going_on_is_found(what: str) -> None:
    by_rank, kind, ranks, words = FOUND[what]
    (finding,) = findings(records(*by_rank))
    assert (finding.kind, finding.ranks, finding.waiting) == (kind, ranks, False)
    assert finding.text == words if isinstance(words, str) else all(part in finding.text for part in words)
    assert analyse(records(*by_rank)).startswith(finding.text)


@pytest.mark.parametrize(
    ("name", "change", "wrong"),
    [
        ("all_reduce", {"nbytes": 8}, True),
        ("all_reduce", {"dtype": "float64"}, True),
        ("broadcast", {"nbytes": 8}, True),
        ("all_gather", {"nbytes": 8}, False),
        ("scatter", {"nbytes": 8}, False),
        ("all_gather", {"dtype": "int8"}, True),
    ],
)
def test_sizes_must_agree_where_all_ranks_bring_as_much(name: str, change: dict[str, Any], wrong: bool) -> None:
    differing = records(told(0, op(name, 0)), told(1, op(name, 0)), told(2, op(name, 0, **change)))
    assert [finding.ranks for finding in findings(differing)] == ([(2,)] if wrong else [])


def test_who_waits_for_another_is_not_the_first() -> None:
    """Rank 0 waits for 1 in one group, 1 waits for 2 in the other, and 2 is at fault."""
    first = [op("all_reduce", 0, "running", began_ns=100)]
    second = [op("barrier", 0, "running", group="b", began_ns=200)]
    idle = {**told(2), "groups": {"b": {**told(1, *second)["groups"]["b"], "begun": -1}}}
    loop = records(told(0, *first), told(1, *second), idle)
    found = findings(loop)
    assert [(finding.group, finding.ranks, finding.waiting) for finding in found] == [
        ("b", (2,), False),
        ("default", (1,), True),
    ]
    assert "it was in barrier #0 on group 'the b group'" in found[1].text
    assert analyse(loop).startswith("Group 'the b group': rank 2")


def test_two_that_receive_from_each_other_are_both_held_up() -> None:
    cross = records(*(told(rank, message("recv", 0, 1 - rank, "running"), size=2) for rank in range(2)))
    assert [(finding.ranks, finding.waiting) for finding in findings(cross)] == [((1,), True), ((0,), True)]
    assert analyse(cross).endswith("No rank here can go on: they wait for each other.")


def test_messages_to_the_dead_and_from_anyone() -> None:
    waits = records(told(0, message("recv", 0, None, "running")), told(1, message("send", 0, 2, "running")))
    texts = [finding.text for finding in findings(waits)]
    assert any("from anyone" in text and "nobody has sent anything" in text for text in texts)
    assert any("to rank 2" in text and "there is no record of rank 2" in text for text in texts)


def test_many_findings_are_cut_short() -> None:
    many = [op("barrier", 0, "running", group=f"g{n}", thread=n) for n in range(9)]
    assert "5 more groups or messages hang after that" in analyse(records(told(0, *many)))


# ---------------------------------------------------------------------- the files


def write(folder: Path, *each: dict[str, Any]) -> None:
    for record in each:
        (folder / f"rank{record['rank']}.json").write_text(json.dumps(record))


@pytest.fixture
def trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Trace:
    """Run `rankwise trace` on the records in the test's folder; the text that it returns is not broken into lines."""

    def run(*words: str, output: str = "") -> tuple[object, str, str]:
        more = ["-o", str(tmp_path / output)] if output else []
        code, out, err = run_here(capsys, "trace", str(tmp_path), *more, *words)
        return code, " ".join(out.split()), " ".join(err.split())

    return run


def test_files_are_read_back(tmp_path: Path) -> None:
    write(tmp_path, *(told(rank, *STEPS, message("send", 0, 1)) for rank in range(3)))
    (tmp_path / "trace.json").write_text("[]")  # what a timeline may be called
    (tmp_path / ".rank7.json").write_text("{")
    read = load(str(tmp_path))
    assert sorted(read) == [0, 1, 2]
    assert [(o.op, o.message, o.peer) for o in read[1].operations[1:]] == [
        ("broadcast", False, None),
        ("send", True, 1),
    ]
    assert read[1].stacks == (("MainThread", ("/home/me/data.py:88 in load",)),)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not JSON"),
        ("\x00\xff", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "no record of rankwise"),
        ('{"traceEvents": []}', "no record of rankwise"),
        ('{"rankwise_trace": 99}', "format 99"),
        ('{"rankwise_trace": 1}', "damaged: KeyError: 'groups'"),
        (json.dumps({**told(0), "rank": "0"}), "damaged"),
        (json.dumps({**told(0), "entries": [{}]}), "damaged"),
        (json.dumps({**told(0), "entries": [op("barrier", 0, "sleeping")]}), "in no state"),
        (json.dumps({**told(0), "groups": [], "entries": []}), "damaged"),
        (json.dumps(told(5, size=6)), "of rank 5"),
        (json.dumps(told(5)), "there is no rank 5 of 3"),
        (json.dumps(told(0, size=1 << 40) | {"groups": {}}), "damaged"),
        (json.dumps({**told(0), "written_ns": 10**400}), "damaged"),
    ],
)
def test_what_is_no_record_is_told_in_one_paragraph(tmp_path: Path, trace: Trace, content: str, words: str) -> None:
    (tmp_path / "rank0.json").write_text(content, encoding="latin-1")
    code, out, err = trace()
    assert (code, out) == (1, "")
    assert "rank0.json" in err
    assert words in err
    assert "Traceback" not in err


def test_folders_without_records_and_with_mixed_ones(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no record .* RANKWISE_TRACE_DIR="):
        load(str(tmp_path))
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        load(str(tmp_path / "nowhere"))
    write(tmp_path, told(0, size=2), told(1, size=4))
    with pytest.raises(TraceError, match=r"of different jobs, of \[2, 4\] ranks"):
        load(str(tmp_path))


def test_a_terminal_is_not_told_what_to_do() -> None:
    nasty = told(0, op("barrier", 0, "running", file="/\x1b[2J\n.py"), size=1)
    assert "\x1b" not in analyse(records(nasty))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(derandomize=True, deadline=None)
@given(st.sampled_from(sorted(told(0))), st.sampled_from([*op("barrier", 0), "peer", "tag", "error"]), JSON, JSON)
def test_only_our_error_escapes_whatever_a_file_holds(name: str, key: str, value: Any, other: Any) -> None:
    operation = {**told(0, *STEPS), "entries": [{**STEPS[0], key: value}, {**STEPS[1], "state": "running"}]}
    group = {**told(0, *STEPS), "groups": {"default": {**told(0, *STEPS)["groups"]["default"], "ranks": other}}}
    for content in (other, {**told(0), name: value}, operation, group):
        try:
            found = records(content)
        except TraceError:
            continue
        assert analyse(found)
        check(timeline(found))
        assert data_of(page(found))


# ---------------------------------------------------------------------- the timeline


def check(trace: Mapping[str, Any]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Check that a viewer can open a timeline, and return its operations by row."""
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    assert trace["displayTimeUnit"] == "ms"
    rows: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    arrows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    named = set()
    for event in trace["traceEvents"]:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            named.add((event["name"], event["pid"], event["tid"]))
            continue
        if event["ph"] in ("s", "t", "f"):
            arrows[event["id"]].append(event)
            continue
        assert event["ph"] == "X"
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        rows[event["pid"], event["tid"]].append(event)
    for chain in arrows.values():
        assert "".join(event["ph"] for event in chain) == "s" + "t" * (len(chain) - 2) + "f"
        assert len({event["pid"] for event in chain}) == len(chain)
        assert [event["ts"] for event in chain] == sorted(event["ts"] for event in chain)
        for event in chain:  # a viewer finds the box by the arrow's time
            boxes = rows[event["pid"], event["tid"]]
            assert any(box["ts"] <= event["ts"] <= box["ts"] + box["dur"] for box in boxes)
    for (pid, tid), row in rows.items():
        assert {("process_name", pid, 0), ("thread_name", pid, tid)} <= named
        for before, after in pairwise(row):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-3  # a viewer would nest them
    return rows


def test_each_rank_has_a_process_and_each_group_a_row() -> None:
    mine = [*STEPS, op("barrier", 0, group="b"), message("send", 0, 1), op("all_reduce", 2, "running")]
    trace = timeline(records(*(told(rank, *mine) for rank in range(2))))
    rows = check(trace)
    assert sorted(rows) == [(rank, row) for rank in range(2) for row in range(3)]
    titles = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] in ("process_name", "thread_name")]
    assert titles[:4] == ["rank 0 (one, pid 1000)", "default", "default, messages", "the b group"]
    first, _, last = rows[0, 0]
    assert (first["name"], first["ts"], first["dur"]) == ("all_reduce #0", 0.0, 1000.0)
    assert first["args"]["at"] == "/home/me/train.py:100 in step"
    assert last["args"]["state"] == "running"
    assert last["ts"] + last["dur"] == WRITTEN / 1e3  # it had not ended
    assert rows[0, 1][0]["args"]["peer"] == 1


def test_operations_that_overlap_are_in_different_rows() -> None:
    def at(number: int, began: int, ended: int) -> dict[str, Any]:
        return op("all_reduce", number, began_ns=began, ended_ns=ended, thread=0)

    overlap = [at(0, 0, 100), at(1, 10, 90), at(2, 100, 200)]  # as asynchronous calls do
    trace = timeline(records(told(0, *overlap)))
    rows = check(trace)
    assert [[e["name"][-2:] for e in row] for row in rows.values()] == [["#0", "#2"], ["#1"]]
    assert [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"] == ["default", "default (2)"]


def moved(steps: list[dict[str, Any]], by_ns: int) -> list[dict[str, Any]]:
    """Return operations as a clock tells them that is ahead."""
    return [{**o, "began_ns": o["began_ns"] + by_ns, "ended_ns": o["ended_ns"] + by_ns} for o in steps]


def test_clocks_of_one_machine_are_one_and_others_are_known_as_well_as_their_barriers_were_short() -> None:
    steps = [op("barrier", number) for number in range(3)]
    found = records(
        told(0, *steps, clock_offset_ns=1000),
        told(1, *steps, clock_offset_ns=2000),  # the same clock, whatever it thinks of the time of day
        told(2, *moved(steps, 7 * MS), clock_offset_ns=-99 * MS, boot="second"),
    )
    clocks = aligned(found).clocks
    assert clocks[0] == clocks[1] == Clock(0)
    assert clocks[2] == Clock(-7 * MS, MS)  # each barrier took a millisecond
    trace = timeline(found)
    check(trace)
    assert trace["otherData"]["clocks"] == {"one": "+-0 us"}
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert names[2] == "rank 2 (one, pid 1002, clock +-1000 us)"


def test_without_common_operations_the_clocks_of_the_day_count() -> None:
    found = records(told(0, clock_offset_ns=5), told(1, op("barrier", 0), clock_offset_ns=9, boot="second"))
    assert aligned(found).clocks == {0: Clock(0), 1: Clock(4, None)}
    assert "clock unknown" in json.dumps(timeline(found))


def late_steps(rank: int, count: int = 12) -> list[dict[str, Any]]:
    """Return barriers to which rank 1 comes two milliseconds late."""
    late = 2 * MS if rank == 1 else rank * 1000
    return [op("barrier", n, began_ns=n * 10 * MS + late, ended_ns=n * 10 * MS + 3 * MS) for n in range(count)]


def test_arrows_lead_to_the_last_and_boxes_say_how_long_they_waited() -> None:
    trace = timeline(records(*(told(rank, *late_steps(rank)) for rank in range(3))))
    rows = check(trace)
    chains = [e["pid"] for e in trace["traceEvents"] if e["ph"] in ("s", "t", "f") and e["id"] == 1]
    assert chains == [0, 2, 1]
    first = {rank: rows[rank, 0][0]["args"] for rank in range(3)}
    assert first[0]["waited_ms"] == 2.0
    assert first[1]["waited_ms"] == 0.0
    assert {told["last"] for told in first.values()} == {"rank 1"}


def test_collectives_that_let_ranks_go_before_others_come_have_arrows_and_no_waits() -> None:
    found = records(*(told(rank, op("broadcast", 0, root=0)) for rank in range(2)), told(2))
    trace = timeline(found)
    assert sum(e["ph"] in ("s", "f") for e in trace["traceEvents"]) == 2
    assert not any("waited_ms" in e["args"] for e in trace["traceEvents"] if e["ph"] == "X")


def test_several_worlds_are_on_one_timeline_and_none_of_their_ranks_is_taken_for_another() -> None:
    world = records(*(told(rank, *late_steps(rank), clock_offset_ns=0) for rank in range(3)))
    outside = {"group": "served", "ranks": [0, 2]}
    served = [told(r, *late_steps(r), size=2, outside=outside, clock_offset_ns=20 * MS) for r in (0, 2)]
    trace = timeline(world, records(*served))
    rows = check(trace)
    assert sorted({pid for pid, _ in rows}) == [0, 1, 2, 3, 5]
    assert rows[3, 0][0]["ts"] == 20_000.0, "its clock of the day is ahead"
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"]
    assert names[3] == "rank 0 of served (one, pid 1000)"
    drawn = data_of(page(world, records(*served)))
    assert [rank["title"] for rank in drawn["ranks"]][2:4] == ["rank 2", "rank 0 of served"]
    assert {op[9] for rank in drawn["ranks"] for row in rank["rows"] for op in row["ops"]} == {"0 default", "1 default"}


def data_of(text: str) -> Any:
    (data,) = re.findall(r"^const data = (.*);$", text, re.MULTILINE)
    return json.loads(data)


def test_the_page_is_whole_and_fetches_nothing() -> None:
    text = page(records(*(told(rank, *late_steps(rank), message("send", 0, 1)) for rank in range(3))))
    assert not re.search(r"(?:https?:)?//[a-z]|\bsrc=|@import|\burl\(|\bfetch\(|<link", text)
    assert text.count("<script>") == text.count("</script>") == 1
    data = data_of(text)
    assert data["late"] == [
        "rank 1 was waited for: it held up 12 of 12 collectives of group 'default', by 2.00 ms at the median"
    ]
    assert [rank["title"] for rank in data["ranks"]] == ["rank 0", "rank 1", "rank 2"]
    collectives, messages = data["ranks"][0]["rows"]
    assert collectives["ops"][0][:5] == ["barrier", 0, 0.0, 3000.0, 2000.0]
    assert messages["ops"][0][8].strip() == "to rank 1"


def test_what_files_say_cannot_end_the_script() -> None:
    nasty = told(0, op("barrier", 0, file="</script><script>alert(1)</script>"), size=1)
    text = page(records(nasty))
    assert text.count("</script>") == 1
    assert "</script>" in data_of(text)["ranks"][0]["rows"][0]["ops"][0][5]


def test_each_format_has_a_command(tmp_path: Path, trace: Trace) -> None:
    write(tmp_path, *(told(rank, *late_steps(rank)) for rank in range(3)))
    for words, output in ([], "out.json"), (["--format", "perfetto"], "other.html"):
        assert trace(*words, output=output)[0] == 0
        check(json.loads((tmp_path / output).read_text()))
    assert trace(output="out.html")[0] == 0
    assert data_of((tmp_path / "out.html").read_text())["late"]
    code, _, said = trace("--format", "html")
    assert (code, "needs -o" in said) == (2, True)


def test_a_terminal_is_told_what_takes_long_and_a_file_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, *(told(rank, op("barrier", 0), size=40) for rank in range(40)))
    command = ["trace", str(tmp_path), "-o", str(tmp_path / "t.html"), "--analyse"]
    assert main(command) == 0
    silent = capsys.readouterr()
    assert silent.err == ""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(command) == 0
    shown = capsys.readouterr()
    lines = shown.err.split("\r\x1b[K")
    reading = [f"reading {count} of 40 records" for count in (16, 32)]
    assert [line for line in lines if line] == [
        *(*reading, "drawing the records of 40 ranks", "comparing the records of 40 ranks")
    ]
    assert lines[-1] == ""  # nothing of it is left beside the answer
    assert shown.out == silent.out


@pytest.mark.parametrize("count", [0, 1, 12])
def test_the_page_and_the_terminal_say_the_same_of_who_was_waited_for(count: int, tmp_path: Path, trace: Trace) -> None:
    write(tmp_path, *(told(rank, *late_steps(rank, count), message("send", 0, 1)) for rank in range(3)))
    _, said, _ = trace()
    trace(output="out.html")
    shown = data_of((tmp_path / "out.html").read_text())["late"]
    assert re.findall(r"On the way, (rank \d+ was waited for: .*? median)\.", said) == shown
    assert ("waited for" in said) == (count > 1)


# ---------------------------------------------------------------------- the command, on what ranks have really written


def leave_the_path() -> None:
    rank, pair = dist.get_rank(), dist.new_group([0, 1, 2], group_desc="all three")
    dist.all_reduce(np.ones(4))
    for work in [dist.all_reduce(np.ones(4), async_op=True) for _ in range(2)]:
        work.wait()
    if rank == 0:
        dist.send(np.ones(1), 1)
    elif rank == 1:
        dist.recv(np.ones(1), 0)
    if rank != 1:
        with pytest.raises(dist.DistError):
            dist.barrier(pair, timeout=0.2)


def test_trace_of_a_real_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trace: Trace) -> None:
    monkeypatch.setenv("RANKWISE_TRACE_DIR", str(tmp_path))
    run_local(3, leave_the_path, timeout=30)
    code, out, _ = trace("--analyse", output="trace.json")
    assert code == 0
    assert "of 3 ranks are in" in out
    assert "Group 'all three': rank 1 never called barrier #0" in out
    assert "The group ended with DistTimeoutError: barrier #0" in out
    rows = check(json.loads((tmp_path / "trace.json").read_text()))
    names = [sorted(event["name"] for (pid, _), row in rows.items() if pid == r for event in row) for r in range(3)]
    common = ["all_reduce #0", "all_reduce #1", "all_reduce #2"]
    assert names == [[*common, "barrier #0", "send #0"], [*common, "recv #0"], [*common, "barrier #0"]]
    code, out, _ = trace()  # the timeline beside the records does not disturb
    assert (code, "never called" in out) == (0, True)


def die_in_the_middle() -> None:
    dist.init_process_group("gloo", timeout=20)
    for number in range(1500):
        if number == 1200 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            dist.all_reduce(np.ones(16))
        except dist.DistError:
            break
    with suppress(dist.DistError):
        dist.destroy_process_group()


def test_the_survivors_records_name_the_dead(tmp_path: Path) -> None:
    pytest.importorskip("rankwise_gloo_tcp")
    with RankPool(3, env={"RANKWISE_TRACE_DIR": str(tmp_path)}) as pool:
        pool.run(die_in_the_middle, doomed=[1])
    left = load(str(tmp_path))
    assert sorted(left) == [0, 2]
    assert [len(record.operations) for record in left.values()] == [1024, 1024]
    (finding,) = findings(left)
    assert (finding.kind, finding.ranks) == ("missing", (1,))
    assert re.search(r"ranks 0 and 2 failed in all_reduce #1200 at test_trace.py:\d+", finding.text)
    assert "The group ended with PeerDiedError: rank 1 " in finding.text
    check(timeline(left))


def test_the_command_has_help_with_an_example_and_needs_no_backend(tmp_path: Path) -> None:
    write(tmp_path, *(told(rank, *STEPS) for rank in range(3)))
    command = [sys.executable, "-m", "rankwise", "trace"]
    path = {"PYTHONPATH": str(Path(dist.__file__).parents[1])}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *arguments], env=path, capture_output=True, text=True, timeout=PATIENCE_S)

    asked = run("--help")
    assert asked.returncode == 0
    assert "rankwise trace /tmp/records -o trace.json" in asked.stdout
    done = run(str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("All ranks made the same calls")
    wrong = run(str(tmp_path), "-o", str(tmp_path / "no" / "such.json"))
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith("rankwise trace: ")
