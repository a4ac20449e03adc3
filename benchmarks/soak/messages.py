"""Messages of a program: sends at their step, receives then or later, in any order that the streams allow."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import rankwise as dist
from rankwise.groups.process_group import ProcessGroup
from soak.arrays import Room, lay_out
from soak.program import Message, Step
from soak.values import dtype_of, part

if TYPE_CHECKING:
    from soak.rank import Rank

#: Tags of one step.
TAGS = 16
_ANYONE = 5


def begin(rank: Rank, step: Step, group: ProcessGroup) -> None:
    """Begin what this rank sends and receives; the streams, each in its order, mix as the rank likes."""
    me = dist.get_rank(group)
    numbered = list(enumerate(step.what["messages"]))
    for number, message in _mixed(rank, [(n, m) for n, m in numbered if m.dst == me]):
        if message.at > step.at:
            rank.first(step, message.at, partial(_receive, rank, step, group, number, message))
        else:
            _receive(rank, step, group, number, message)
    for number, message in _mixed(rank, [(n, m) for n, m in numbered if m.src == me]):
        array = lay_out(part(message.dtype, message.count, step.at, number), rank.roll.randrange(5), rank.roll)
        work = dist.isend(array, group=group, group_dst=message.dst, tag=TAGS * step.at + message.tag)
        rank.finish(step, step.what["late"], partial(rank.wait, work))


def _mixed(rank: Rank, numbered: list[tuple[int, Message]]) -> list[tuple[int, Message]]:
    streams: dict[tuple[int, int, int], list[tuple[int, Message]]] = defaultdict(list)
    for number, message in numbered:
        streams[message.src, message.dst, message.tag].append((number, message))
    turns = [stream for stream, line in streams.items() for _ in line]
    rank.roll.shuffle(turns)
    return [streams[stream].pop(0) for stream in turns]


def _receive(rank: Rank, step: Step, group: ProcessGroup, number: int, message: Message) -> None:
    room = Room(dtype_of(message.dtype), message.count, rank.roll)
    want = part(message.dtype, message.count, step.at, number)
    check = partial(room.check, want, f"message {number} {message}")
    array, terms = room.shaped(rank.roll.randrange(5)), {"group": group, "tag": TAGS * step.at + message.tag}
    if message.at > step.at and rank.roll.random() < 0.5:
        dist.recv(array, group_src=message.src, **terms)
        check()
        return
    work = dist.irecv(array, group_src=message.src, **terms)

    def finish() -> None:
        rank.wait(work)
        check()

    rank.finish(step, rank.roll.randint(message.at, step.what["late"]), finish)


def from_anyone(rank: Rank, step: Step, group: ProcessGroup) -> None:
    """Send some messages to one rank, which takes them from any rank, in the order in which they come."""
    me, what, tag = dist.get_rank(group), step.what, TAGS * step.at + _ANYONE
    dtype, count = what["dtype"], what["count"]
    if me == what["dst"]:
        _take_all(rank, step, group, tag)
        return
    works = []
    for i in range(what["each"]):
        array = lay_out(part(dtype, count, step.at, me, i), rank.roll.randrange(5), rank.roll)
        works.append(dist.isend(array, group=group, group_dst=what["dst"], tag=tag))
    for work in works:
        rank.wait(work)


def _take_all(rank: Rank, step: Step, group: ProcessGroup, tag: int) -> None:
    what: dict[str, Any] = step.what
    taken = [0] * dist.get_world_size(group)
    for _ in range(what["each"] * (len(taken) - 1)):
        room = Room(dtype_of(what["dtype"]), what["count"], rank.roll)
        sender = dist.get_group_rank(group, dist.recv(room.array, group=group, tag=tag))
        want = part(what["dtype"], what["count"], step.at, sender, taken[sender])
        room.check(want, f"from anyone: message {taken[sender]} of rank {sender}, {what}")
        taken[sender] += 1
