"""`rankwise top`: what samples say together, who is late, and how that is shown."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.processes import read_terminal, wait_until
from tests.threads import run_local, within

import rankwise as dist
from rankwise.cli import main
from rankwise.groups.world import current
from rankwise_launch.commands import CommandError
from rankwise_tools import top_command
from rankwise_tools.recordings.arrivals import Arrival, lateness, latest, meetings, waits
from rankwise_tools.recordings.clocks import Call, Clock, align
from rankwise_tools.top import jobs
from rankwise_tools.top.live import Keys
from rankwise_tools.top.samples import checked
from rankwise_tools.top.text import SORTS, Wish, plain, rank_rows
from rankwise_tools.top.view import History, View
from rankwise_watch.sampling import sample as shown_by

PATIENCE_S = 60.0
LEEWAY_S = 5.0

MS = 1_000_000
SECOND = 1000 * MS


def round_trips(offset_ns: int, one_way_ns: int, count: int = 5) -> dict[int, list[Call]]:
    """Return barriers of two ranks, of which the second one's clock is behind; each waits for the other's signal."""
    ours, theirs = [], []
    for number in range(count):
        came = [number * SECOND, number * SECOND + 3 * MS]
        left = max(came) + one_way_ns
        ours.append(Call(number, came[0], left))
        theirs.append(Call(number, came[1] - offset_ns, left - offset_ns))
    return {0: ours, 1: theirs}


def of_two(calls: dict[int, list[Call]]) -> Any:
    """Return what is known of the clocks of two machines, one rank on each, by their calls."""
    return align({0: "one", 1: "two"}, calls, {0: 0, 1: 0})


@pytest.mark.parametrize("offset_ns", [0, 7 * MS, -3600 * SECOND])
def test_clocks_of_two_machines_are_known_as_well_as_a_round_trip_is_short(offset_ns: int) -> None:
    found = of_two(round_trips(offset_ns, MS))
    assert found[0] == Clock(0, 0)
    assert abs(found[1].offset_ns - offset_ns) <= found[1].error_ns <= 4 * MS


def test_a_rank_that_is_always_late_does_not_move_its_clock() -> None:
    """By causality alone the clock could be wrong by as much as the rank is late."""
    assert of_two(round_trips(5 * MS, 100_000))[1] == Clock(5 * MS, 100_000)


def test_what_cannot_be_is_ruled_out_however_unevenly_ranks_leave() -> None:
    found = of_two({rank: [Call(0, 0, ns), Call(1, 100 * MS, 101 * MS)] for rank, ns in enumerate((9 * MS, 3 * MS))})[1]
    assert -MS <= found.offset_ns <= MS
    assert abs(found.offset_ns) <= found.error_ns <= 2 * MS


def test_clocks_that_run_apart_leave_an_estimate_and_a_doubt() -> None:
    begins = {rank: [n * SECOND + n * 5 * rank * MS for n in range(3)] for rank in range(2)}
    calls = {rank: [Call(n, begin, begin + MS) for n, begin in enumerate(each)] for rank, each in begins.items()}
    # Each call alone says something else, and leaves a millisecond of doubt: the bounds of all have changed places.
    assert of_two(calls)[1] == Clock(-5 * MS, MS)


def test_one_machine_has_one_clock_and_strangers_that_of_the_day() -> None:
    assert align({3: "one", 5: "one"}, {}, {3: 9, 5: 4}) == {3: Clock(0), 5: Clock(0)}
    assert align({0: "one", 1: "two"}, {}, {0: 9, 1: 4}) == {0: Clock(0), 1: Clock(-5, None)}


def arrivals(late_ns: Mapping[int, int], calls: int = 20, size: int = 4, first: int = 0) -> dict[int, list[Arrival]]:
    return {
        rank: [
            # Everyone else comes at another time each time, within a few microseconds.
            Arrival("all_reduce", n, n * 10 * MS + late_ns.get(rank, (rank * 7 + n * 3) % 5 * 1000))
            for n in range(first, first + calls)
        ]
        for rank in range(size)
    }


def test_the_rank_that_is_late_is_named_and_by_how_much() -> None:
    found = lateness(meetings(arrivals({2: MS}), range(4)))
    worst = latest(found)
    assert (worst.rank, worst.calls, worst.held_up) == (2, 20, 20)
    assert 0.99 * MS <= worst.late_ns <= MS
    assert all(found[rank].late_ns < 0 for rank in (0, 1, 3))


def test_nobody_is_named_for_what_scheduling_does_or_clocks_do_not_tell() -> None:
    assert latest(lateness(meetings(arrivals({}), range(4)))) is None
    assert latest(lateness(meetings(arrivals({2: MS}), range(4))), error_ns=2 * MS) is None
    assert latest(lateness(meetings(arrivals({2: MS}, calls=3), range(4)))) is None, "three calls say nothing"
    assert latest({}) is None


def test_who_is_late_once_in_a_step_of_many_collectives_is_named() -> None:
    """Ten collectives a step; before the first, rank 5 takes a millisecond longer, and all are at times held up."""
    chance, told = Random(7), {rank: [] for rank in range(8)}  # type: dict[int, list[Arrival]]
    for number in range(500):
        for rank in range(8):
            late_ns = MS * (number % 10 == 0 and rank == 5) + 300_000 * (chance.random() < 0.004)
            told[rank].append(Arrival("all_reduce", number, number * 10 * MS + late_ns + chance.randrange(20_000)))
    worst = latest(lateness(meetings(told, range(8))))
    assert worst.rank == 5
    assert 45 <= worst.held_up <= 60
    assert 0.8 * MS < worst.late_ns < 1.1 * MS


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_named_where_all_are_held_up_by_chance(size: int, seed: int) -> None:
    chance = Random(seed)
    told = {
        rank: [Arrival("all_reduce", n, n * 10 * MS + chance.randrange(4 * MS)) for n in range(400)]
        for rank in range(size)
    }
    assert latest(lateness(meetings(told, range(size)))) is None


def test_only_calls_that_wait_for_all_and_to_which_all_came_count() -> None:
    told = arrivals({2: MS})
    told[1] = told[1][5:]
    told[0].append(Arrival("broadcast", 20, 0))
    met = meetings(told, range(4))
    assert [meeting.number for meeting in met] == list(range(5, 20))
    assert waits(met)[2][0] == 0
    assert waits(met)[0][0] >= 14 * 0.99 * MS, "but for the first, of which nobody knows what was before"
    assert meetings({0: told[0]}, (0,))[0].complete_ns == told[0][0].began_ns
    assert lateness(meetings({0: told[0]}, (0,))) == {}, "a rank alone waits for nobody"


# ---------------------------------------------------------------------- views


def told(rank: int, look: int, late_ns: Mapping[int, int], size: int = 4, **more: Any) -> dict[str, Any]:
    """Return what a rank shows at a look, a second after the other; it makes a hundred calls a second."""
    done = 100 * look
    terms = {"description": "default", "ranks": list(range(size)), "backend": "gloo", "failure": "", "way": "board"}
    figures = {"moved_nbytes": {"pipe": 1000 * look}, "shared_nbytes": 1 << 20, "uncounted": 0}
    steps = {
        "pending": [step("all_reduce", done, 0.25)],
        "last": step("all_reduce", done - 1, 0.3),
        "begun": [done, -1],
    }
    group = {
        **terms,
        **figures,
        **steps,
        "queued": {"collectives": 2},
        "operations": {
            "all_reduce": [done, 4000 * done, 0.5 * look, 0.4 * look if rank != 2 else 0.1 * look, 0],
            "send": [look, 8, 0.0, None, 0],
        },
        "arrivals": [[a.op, a.number, a.began_ns, a.began_ns + MS] for a in arrivals(late_ns, done, size)[rank]],
        "messages": [],
    }
    place = {"rank": rank, "ranks": list(range(size)), "outside": "", "host": "node0", "pid": 1000 + rank}
    clock = {"clock": "first", "now_ns": look * SECOND, "day_ns": look * SECOND}
    job = {"job": "TCPStore('127.0.0.1', 29500)/world", "program": "train.py --lr 0.1"}
    sample = {"rankwise_sample": 2, "memory_nbytes": (100 + rank) << 20, "groups": {"default": {**group, **more}}}
    return {**sample, **place, **clock, **job}


def step(op: str, number: int, age_s: float) -> dict[str, Any]:
    return {"op": op, "number": number, "peer": None, "message": False, "at": "train.py:41", "age_s": age_s}


def looks(at: Callable[[int], dict[int, dict[str, Any]]]) -> View:
    """Return what two looks show at samples."""
    history = History()
    history.look(at(1))
    return history.look(at(2))


def two_looks(late_ns: Mapping[int, int] | None = None) -> View:
    late_ns = {2: MS} if late_ns is None else late_ns
    return looks(lambda look: {rank: told(rank, look, late_ns) for rank in range(4)})


def test_a_view_has_rates_waits_and_who_is_late() -> None:
    view = two_looks()
    row = view.ranks[1]
    assert (row.doing, row.since_s, row.is_in_call) == ("all_reduce #200 train.py:41", 0.25, True)
    assert (row.calls_per_s, row.bytes_per_s, row.queued) == (101.0, 400_000.0, 2)
    assert row.waiting == pytest.approx(0.4)
    assert view.ranks[2].waiting == pytest.approx(0.1)
    (straggler,) = view.stragglers
    assert (straggler.rank, straggler.host, straggler.group) == (2, "node0", "default")
    assert straggler.late_s == pytest.approx(1e-3, rel=0.02)
    reduced = next(row for row in view.groups if row.op == "all_reduce")
    assert (reduced.size, reduced.way, reduced.waited_for, reduced.calls_per_s) == (4, "board", 2, 100.0)
    assert reduced.bytes_per_s == 1_600_000.0
    sent = next(row for row in view.groups if row.op == "send")
    assert (sent.way, sent.waiting) == ("pipe", None)
    assert view.transports == {"pipe": 4000.0, "board": 1_600_000.0}


def on_two_hosts(look: int, late_ns: Mapping[int, int], behind_ns: int) -> dict[int, dict[str, Any]]:
    """Return samples of four ranks, of which the last two are on a host whose clock is behind."""
    samples = {rank: told(rank, look, late_ns) for rank in range(4)}
    for rank, sample in samples.items():
        for each in sample["groups"]["default"]["arrivals"]:
            latest_ns = each[1] * 10 * MS + max([*late_ns.values(), 5000])
            each[3] = latest_ns + 50_000 + 1000 * rank  # all leave some time after the last has come
            if rank > 1:
                each[2], each[3] = each[2] - behind_ns, each[3] - behind_ns
        if rank > 1:
            sample.update(host="node1", clock="second", now_ns=sample["now_ns"] - behind_ns)
    return samples


@pytest.mark.parametrize("behind_ns", [0, 5 * SECOND, -3600 * SECOND])
@pytest.mark.parametrize("late", [0, 2])
def test_a_straggler_is_named_across_hosts_whatever_their_clocks_say(behind_ns: int, late: int) -> None:
    view = looks(lambda look: on_two_hosts(look, {late: 5 * MS}, behind_ns))
    (straggler,) = view.stragglers
    assert straggler.rank == late
    error_s = view.ranks[3].clock_error_s
    assert abs(straggler.late_s - 5e-3) <= error_s + 1e-5
    assert view.ranks[1].clock_error_s == 0.0
    assert "clocks against the first host: node1 +-" in plain(view, Wish())


def test_a_rank_that_does_not_come_at_all_is_named_too() -> None:
    samples = {rank: told(rank, 1, {}) for rank in range(4)}
    for rank in (0, 1, 3):
        samples[rank]["groups"]["default"]["pending"] = [step("all_reduce", 100, 7.0)]
    samples[2]["groups"]["default"].update(pending=[], begun=[99, -1])
    (straggler,) = History().look(samples).stragglers
    assert (straggler.rank, straggler.late_s) == (2, 7.0)
    assert straggler.sentence() == (
        "rank 2 on node0 is waited for: it has not come to all_reduce #100 train.py:41 of group 'default' for 7.0 s"
    )


def message(op: str, number: int, peer: int | None, began_ns: int, asked_ns: int, ended_ns: int) -> list[Any]:
    return [number, op, f"halo.py:{7 if 'send' in op else 9}", peer, 0, began_ns, asked_ns, ended_ns]


def with_messages(rank: int, look: int, messages: list[list[Any]]) -> dict[str, Any]:
    return told(rank, look, {}, messages=messages, pending=[])


def passed_on(look: int) -> dict[int, dict[str, Any]]:
    """Return samples of ranks of which 2 computes for a millisecond a step, 1 waits for it, and 0 waits for 1."""
    shown: dict[int, list[list[Any]]] = {rank: [] for rank in range(4)}
    for n in range(20 * look):
        at = n * 2 * MS + 1
        shown[2].append(message("isend", n, 1, at + MS, 0, at + MS))
        shown[1].append(message("irecv", 2 * n, 2, at, at, at + MS))
        shown[1].append(message("isend", 2 * n + 1, 0, at + MS, 0, at + MS))
        shown[0].append(message("recv", n, 1, at, at, at + MS))
    return {rank: with_messages(rank, look, shown[rank][-30:]) for rank in range(4)}


@pytest.mark.parametrize("look", [1, 5])
def test_who_comes_late_to_messages_is_named_and_not_who_passes_it_on(look: int) -> None:
    history = History()
    history.look(passed_on(look))
    (straggler,) = history.look(passed_on(look + 1)).stragglers
    assert (straggler.rank, straggler.message, straggler.late_s) == (2, True, 1e-3)
    assert re.fullmatch(
        r"rank 2 on node0 is waited for: it holds up \d+ of \d+ messages of group 'default', by 1.00 ms at the median; "
        r"it comes late to isend at halo.py:7",
        straggler.sentence(),
    )


def test_who_does_not_answer_a_message_is_named_and_not_who_passes_it_on() -> None:
    began = 15 * SECOND // 2
    waits = {0: message("recv", 0, 1, began, began, 0), 1: message("irecv", 0, 2, began, began, 0)}
    samples = {rank: with_messages(rank, 10, [waits[rank]] if rank in waits else []) for rank in range(4)}
    (straggler,) = History().look(samples).stragglers
    assert straggler.sentence() == (
        "rank 2 on node0 is waited for: it has not answered rank 1's irecv at halo.py:9 of group 'default' for 2.5 s"
    )
    samples[2] = with_messages(2, 10, [message("irecv", 0, 0, began, began, 0)])
    assert History().look(samples).stragglers == (), "they wait for each other"
    samples[2] = with_messages(2, 10, [message("irecv", 0, 0, began, 0, 0)])
    assert [s.rank for s in History().look(samples).stragglers] == [2], "it asks for nothing yet"


def test_ranks_that_are_not_seen_and_groups_that_have_failed_are_mentioned() -> None:
    samples = {rank: told(rank, 1, {}, failure="PeerDiedError: rank 3 is gone") for rank in range(3)}
    text = plain(History().look(samples), Wish())
    assert "not seen from here: ranks 3; `rankwise top tcp://HOST:PORT` asks all" in text
    assert "group 'default' has failed: PeerDiedError: rank 3 is gone" in text


def test_the_plain_table() -> None:
    text = plain(two_looks(), Wish("late"))
    lines = text.splitlines()
    assert lines[0] == "train.py --lr 0.1: 4 ranks on 1 host, TCPStore('127.0.0.1', 29500)/world"
    assert lines[2].split()[:4] == ["rank", "host", "pid", "doing"]
    assert lines[4].split()[0] == "2", "the latest comes first"
    assert "rank 2 on node0 is waited for: it holds up 200 of 200 collectives of group 'default', by 1.00 ms" in text
    assert "moving: board 1.6 MB/s, pipe 4 kB/s" in text
    assert "nobody is waited for more than others" in plain(two_looks({}), Wish())


@pytest.mark.parametrize("sort", SORTS)
def test_every_order_sorts(sort: str) -> None:
    rows = rank_rows(two_looks(), Wish(sort))
    assert sorted(row[0] for row in rows) == ["0", "1", "2", "3"]
    first = {"late": "2", "memory": "3", "rank": "0"}
    assert rows[0][0] == first.get(sort, rows[0][0])


def test_wishes_leave_out_what_is_not_wanted() -> None:
    view = two_looks()
    assert [row[0] for row in rank_rows(view, Wish(ranks=(1, 3)))] == ["1", "3"]
    assert rank_rows(view, Wish(group="another")) == []


def test_keys_sort_filter_hold_and_end() -> None:
    view, keys = two_looks(), Keys(Wish())
    assert len(Keys.ORDERS) == len(SORTS), "each order has a key of its own"
    assert not set(Keys.ORDERS) & set("gtjkq "), "and none has another meaning"
    for key, wish in [
        ("l", Wish("late")),
        ("g", Wish("late", "default")),
        ("g", Wish("late", "")),
        ("t", Wish("late", "", (2,))),
        ("t", Wish("late")),
        ("?", Wish("late")),
    ]:
        keys.press(key, view)
        assert keys.wish == wish
    keys.press(" ", view)
    assert keys.held
    assert not keys.stopped
    keys.press("q", view)
    assert keys.stopped


def test_the_live_table_is_drawn() -> None:
    text = on_screen(two_looks(), Keys(Wish()), 160, 50)
    assert "rank 2 on node0 is waited for" in text
    assert "[l]ate" in text
    assert "all_reduce #200 train.py:41" in text


@pytest.mark.parametrize("height", [24, 60])
@pytest.mark.parametrize("width", [60, 120])
def test_many_ranks_leave_room_for_who_is_late(width: int, height: int) -> None:
    view, keys = many(100), Keys(Wish())
    seen: set[str] = set()
    for _ in range(100):
        text = on_screen(view, keys, width, height)
        assert len(text.splitlines()) <= height
        assert "rank 2 on node0 is waited for" in text
        assert "of 100 ranks" in text
        page = set(re.findall(r"^ *(\d+) .*train\.py", text, re.MULTILINE)) - seen
        if not page:
            break
        seen |= page
        keys.press("j", view)
    assert len(seen) == 100, "all can be reached"
    for _ in range(101):
        keys.press("k", view)
    assert re.search(r"\b1 to \d+ of 100 ranks", on_screen(view, keys, width, height))


def test_a_look_at_a_thousand_ranks_takes_seconds() -> None:
    began = time.process_time()
    view = many(1000)
    assert time.process_time() - began < LEEWAY_S
    assert view.ranks[999].waiting is not None
    assert [straggler.rank for straggler in view.stragglers] == [2]


def many(size: int) -> View:
    """Return two looks at a job of many ranks, of which rank 2 is late."""
    ranks = list(range(size))

    def shows(rank: int, look: int) -> dict[str, Any]:
        sample = shown[rank == 2, look]
        group = {**sample["groups"]["default"], "ranks": ranks}
        return {**sample, "rank": rank, "ranks": ranks, "groups": {"default": group}}

    shown = {(late, look): told(2 * late, look, {2: MS}) for late in (False, True) for look in (1, 2)}
    return looks(lambda look: {rank: shows(rank, look) for rank in ranks})


def on_screen(view: View, keys: Keys, width: int, *height: int) -> str:
    """Return what a terminal of some size shows."""
    pytest.importorskip("rich")
    from rich.console import Console

    from rankwise_tools.top.live import drawn

    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115 - rich writes there
    with console.file:
        console.print(drawn(view, keys, width, *height))
        return console.export_text()


@pytest.mark.parametrize("width", range(60, 130))
def test_tables_leave_out_columns_for_which_there_is_no_room(width: int) -> None:
    lines = plain(two_looks(), Wish(), width).splitlines()
    assert max(map(len, lines)) <= width, lines
    assert {"rank", "doing", "waiting", "late"} <= set(lines[lines.index("") + 1].split())
    assert "rank 2 on node0 is waited for" in " ".join(lines)
    shown = on_screen(two_looks(), Keys(Wish()), width)
    assert "…" not in shown, "rich had to cut something off"
    assert {"rank", "doing", "waiting"} <= set(shown.split())


def test_what_a_terminal_would_take_for_a_command_is_not_shown() -> None:
    sample = {**told(0, 1, {}), "host": "\x1b[2J", "program": "a\nb"}
    cleaned = checked(json.dumps(sample).encode())
    assert (cleaned["host"], cleaned["program"]) == (" [2J", "a b")
    with pytest.raises(ValueError, match="no sample"):
        checked(b'{"rankwise_sample": 0}')


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value within a value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, each in items:
        yield from places(each, (*path, key))


HOSTILE = [b"[]", b"{}", b"[[]]", b'{"a": {}}', b"null", b"true", b"-1", b"1.5", b"1e999", b"NaN", b"-Infinity", b'"x"']
HOSTILE += [b"9" * 30, b"[" * 2000, b"[" * 2000 + b"]" * 2000, b"", b"\xff", b'"\\u001b[2J"']


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_no_wrongly_typed_answer_harms_whoever_looks(hostile: bytes) -> None:
    good = {rank: checked(json.dumps(told(rank, 1, {}, size=2)).encode()) for rank in range(2)}
    for place in places(told(1, 2, {}, size=2)):
        sample: Any = {"": told(1, 2, {}, size=2)}
        at: Any = sample
        for key in ("", *place)[:-1]:
            at = at[key]
        at[("", *place)[-1]] = "?hostile?"
        told_bytes = json.dumps(sample[""]).encode().replace(b'"?hostile?"', hostile)
        try:
            found = checked(told_bytes)
        except ValueError:
            continue
        history = History()
        history.look(good)
        text = plain(history.look({0: good[0], 1: found}), Wish())
        json.dumps(history.look({1: found, 0: good[0]}).as_json(), allow_nan=False)
        assert text.replace("\n", "").isprintable()


def test_a_sample_is_what_a_rank_shows() -> None:
    def shows() -> dict[str, Any]:
        dist.all_reduce(np.ones(2))
        work = dist.isend(np.ones(2), dist.get_rank())
        dist.recv(np.ones(2))
        return {**shown_by(current()), "asked": work is not None and work.wait()}

    (shown,) = run_local(1, shows)
    assert shown.pop("asked")
    (number, op, at, peer, tag, began_ns, asked_ns, ended_ns) = shown["groups"]["default"]["messages"][-1]
    assert (number, op, peer, tag) == (1, "recv", 0, 0)
    assert at.startswith("test_top.py:")
    assert began_ns == asked_ns <= ended_ns
    assert checked(json.dumps(shown).encode()) == json.loads(json.dumps(shown))
    for name in shown:
        with pytest.raises(ValueError, match="no sample"):
            checked(json.dumps({key: value for key, value in shown.items() if key != name}).encode())


# ---------------------------------------------------------------------- the command

PROGRAM = """
import sys, time
import numpy as np
import rankwise as dist
dist.init_process_group("gloo")
array, stop, event = np.ones(1000, np.float32), np.zeros(1), __import__("threading").Event()
while not stop[0]:
    event.wait(0.002 + 0.02 * (dist.get_rank() == 2))
    dist.all_reduce(array)
    stop[0] = dist.get_rank() == 0 and __import__("os").path.exists(sys.argv[1])
    dist.broadcast(stop, 0)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run a job of four ranks, of which one is late, until the tests are over."""
    pytest.importorskip("rankwise_gloo_tcp")
    folder = tmp_path_factory.mktemp("job")
    (folder / "program.py").write_text(PROGRAM)
    assert main(["secret", "new", str(folder / "secret")]) == 0
    # One rank is stopped for a while, which on a busy machine takes its time.
    settings = {"RANKWISE_SECRET_FILE": str(folder / "secret"), "RANKWISE_HEARTBEAT_LIMIT_S": "60"}
    env = {**os.environ, **settings, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "rankwise", "run", "-n", "4", "program.py", str(folder / "stop")]
    with subprocess.Popen(command, cwd=folder, env=env) as process:
        try:
            # A window opens a moment after the group is there.
            assert wait_until(lambda: process.poll() is not None or len(seen_of(process.pid)) == 4, PATIENCE_S)
            yield process.pid, folder
        finally:
            (folder / "stop").touch()
            assert process.wait(PATIENCE_S) == 0


def job_of(pid: int) -> jobs.LocalJob | None:
    """Return the job that a process has started, as far as it is seen."""
    known = jobs.local_jobs()
    for each in known:
        each.close()
    return next((job for job in known if all(pid in top_command._ancestors(p) for p in job.processes())), None)


def seen_of(pid: int) -> Collection[int]:
    job = job_of(pid)
    return () if job is None else job.processes()


needs_windows = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names of sockets are files elsewhere")


@needs_windows
def test_a_straggler_of_a_running_job_is_named(job: tuple[int, Path], capsys: pytest.CaptureFixture[str]) -> None:
    pid, _ = job
    with within(LEEWAY_S):
        assert main(["top", str(pid), "--json", "--once", "--interval", "1"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert view["world_size"] == 4
    assert [row["rank"] for row in view["ranks"]] == [0, 1, 2, 3]
    assert all(row["calls_per_s"] > 0 and row["is_in_call"] in (True, False) for row in view["ranks"])
    assert [each["rank"] for each in view["stragglers"]] == [2]
    assert 10e-3 < view["stragglers"][0]["late_s"] < 200e-3


@needs_windows
def test_the_table_is_live_in_a_terminal_and_ends_by_a_key(job: tuple[int, Path]) -> None:
    pytest.importorskip("rich")
    leader, follower = pty.openpty()
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 180, 0, 0))
    env = {**{name: value for name, value in os.environ.items() if name != "NO_COLOR"}, "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "rankwise", "top", str(job[0]), "--interval", "0.2"]
    with subprocess.Popen(command, env=env, stdin=follower, stdout=follower, stderr=follower) as process:
        os.close(follower)
        try:
            shown = read_terminal(leader, PATIENCE_S, "sorted by rank")
            os.write(leader, b"l")
            shown += read_terminal(leader, PATIENCE_S, "sorted by late")
            os.write(leader, b"q")
            read_terminal(leader, PATIENCE_S)
            assert process.wait(PATIENCE_S) == 0, shown
        finally:
            process.kill()
            os.close(leader)
    assert "rank 2 on" in shown


@needs_windows
def test_plain_lines_where_there_is_no_terminal(job: tuple[int, Path], capsys: pytest.CaptureFixture[str]) -> None:
    pid, _ = job
    assert main(["top", str(pid), "--once", "--interval", "0.2", "--sort", "late", "--ranks", "1,2"]) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert "rank 2 on" in told
    assert "all_reduce" in told


@needs_windows
def test_a_rank_that_is_stopped_is_silent_until_it_goes_on(job: tuple[int, Path]) -> None:
    asked: Any = top_command.find(str(job[0]))
    stopped = asked.samples()[3]["pid"]
    os.kill(stopped, signal.SIGSTOP)
    try:
        stat = Path(f"/proc/{stopped}/stat")
        assert wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", PATIENCE_S)
        found = asked.samples()
        assert (sorted(found), asked.silent) == ([0, 1, 2], {3})
        text = plain(History().look(found, asked.silent), Wish())
        assert "no answer from ranks 3: stopped, or something holds the interpreter" in text
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert wait_until(lambda: len(asked.samples()) == 4, PATIENCE_S)
    assert asked.silent == set()
    asked.close()


def test_through_the_store_with_the_secret(
    job: tuple[int, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, folder = job
    port = job_of(pid).place.partition(", ")[2].partition(")")[0]
    monkeypatch.setenv("RANKWISE_SECRET_FILE", str(folder / "secret"))
    assert main(["top", f"tcp://127.0.0.1:{port}", "--json", "--once", "--interval", "1"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert [row["rank"] for row in view["ranks"]] == [0, 1, 2, 3]
    assert view["missing"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x"], "neither a process number nor an address"),
        (["udp://here:1"], "must read like tcp://HOST:PORT"),
        (["--interval", "0"], "--interval must be more than 0"),
        (["--ranks", "a"], "--ranks a: expected numbers"),
        (["1"], "no job has a process 1"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top_command, "local_jobs", list)
    assert main(["top", *arguments]) in (1, 2)
    assert words in " ".join(capsys.readouterr().err.split())


def local_job(**more: Any) -> jobs.LocalJob:
    return jobs.LocalJob({}, {0: {**told(0, 1, {}), **more}})


def test_several_jobs_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    two = [local_job(pid=pid) for pid in (11, 22)]
    monkeypatch.setattr(top_command, "local_jobs", lambda: two)
    with pytest.raises(CommandError, match=r"there are 2 jobs; give a process of one:\n  11  0 of 4 ranks, train.py"):
        top_command.find(None)
    assert top_command.find("22") is two[1]


def test_groups_outside_of_the_world_are_left_out_unless_they_are_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    world = local_job(pid=11)
    inner = local_job(pid=11, outside="pipeline", job="another")
    alone = local_job(pid=22, outside="served", job="a third")
    monkeypatch.setattr(top_command, "local_jobs", lambda: [inner, world])
    assert top_command.find(None) is world
    assert top_command.find("11", "pipeline") is inner
    monkeypatch.setattr(top_command, "local_jobs", lambda: [inner, world, alone])
    assert top_command.find("22") is alone
    assert alone.describe() == "0 of 4 ranks, train.py --lr 0.1, group 'served'"


def test_a_job_that_has_ended_is_no_error_while_it_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_command, "find", lambda wanted, group: local_job())
    options = argparse.Namespace(job=None, once=False, json=True, interval=1.0, sort="rank", group="", ranks="")
    assert top_command.run(options) == 0
    options.once = True
    with pytest.raises(CommandError, match="ended before"):
        top_command.run(options)
