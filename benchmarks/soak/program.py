"""Programs: a seed becomes steps, the same ones on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

from soak.values import DTYPES, LARGE_DTYPES, OPS, dtype_of

COLLECTIVES = (
    *("broadcast", "all_reduce", "reduce", "all_gather", "gather"),
    *("scatter", "reduce_scatter", "all_to_all", "barrier"),
)
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
#: Sizes around which backends change their ways: packets, pages, buffers, credit, pieces.
_EDGES = (64, 256, 1024, 2048, 4096, 8192, 16384, 65536, 131072, 262144, 524288, 1 << 20, 2 << 20, 4 << 20)
#: How far an operation that was begun may be from its end.
_SPAN = 6
#: What one program may move in all, so that it takes a fraction of a second.
_BUDGET_NBYTES = 96 << 20


class Message(NamedTuple):
    """A message: between whom, what, and the place where its receive begins."""

    src: int
    dst: int
    tag: int
    dtype: str
    count: int
    at: int


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        at: Its place; all ranks come by the places in the same order.
        kind: What is done: "collective", "messages", "anyone", "threads", "farewell", "death".
        group: Which of the program's groups does it.
        what: The details.
    """

    at: int
    kind: str
    group: int
    what: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """A program for some ranks.

    Attributes:
        seed: What it was made of.
        size: Number of ranks.
        members: Which processes of the pool are its ranks.
        groups: The ranks of each group, in the group's order; the first is everyone.
        steps: What they do.
    """

    seed: int
    size: int
    members: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]

    def only(self, places: Sequence[int]) -> Program:
        """Return the program with the steps at these places alone."""
        return replace(self, steps=tuple(step for step in self.steps if step.at in set(places)))


def generate(seed: int, most: int = 9, least: int = 1, deaths: bool = False) -> Program:
    """Make the program of a seed."""
    roll = Random(f"soak {seed}")
    size = roll.choice([n for n in (1, 2, 2, 2, 3, 3, 4, 5, 5, 6, 7, 8, 9, 9) if least <= n <= most] or [most])
    members = tuple(roll.sample(range(most), size))
    groups = [tuple(range(size))]
    for _ in range(roll.randrange(4)):
        groups.append(tuple(roll.sample(range(size), roll.randint(1, size))))
    maker = _Maker(roll, groups)
    steps = [maker.step(at) for at in range(roll.randint(4, 24))]
    if deaths and size > 1:
        steps.append(
            Step(len(steps) + 2 * _SPAN + 3, "death", 0, {"victim": roll.randrange(size), "idle": roll.random() < 0.5})
        )
    return Program(seed, size, members, tuple(groups), tuple(steps))


class _Maker:
    def __init__(self, roll: Random, groups: list[tuple[int, ...]]) -> None:
        self.roll, self.groups = roll, groups
        self.left = _BUDGET_NBYTES

    def step(self, at: int) -> Step:
        roll = self.roll
        group = roll.choice([0, 0, 0, *range(len(self.groups))])
        size = len(self.groups[group])
        kinds = ["collective"] * 10 + ["messages"] * (6 if size > 1 else 1) + ["anyone"] + ["threads"] + ["farewell"]
        kind = roll.choice(kinds)
        return Step(at, kind, group, getattr(self, f"_{kind}")(at, size))

    def _collective(self, at: int, size: int) -> dict[str, Any]:
        roll = self.roll
        op = roll.choice(COLLECTIVES)
        reduce = roll.choice(list(OPS)) if op in REDUCING else None
        copies = size if op not in ("broadcast", "all_reduce", "reduce", "barrier") else 1
        dtype, count = self._array(OPS[reduce] if reduce else DTYPES, copies * size)
        what = {"op": op, "dtype": dtype, "count": count, "root": roll.randrange(size), "reduce": reduce}
        if op in ("all_gather", "gather", "scatter", "reduce_scatter", "all_to_all") and roll.random() < 0.3:
            what["uneven"] = roll.randrange(1, 1000)
        elif op in ("all_gather", "gather", "reduce_scatter") and roll.random() < 0.2:
            what["overlap"] = roll.randrange(size)
        return {**what, "until": at + roll.choice([0, 0, 0, roll.randrange(_SPAN)])}

    def _messages(self, at: int, size: int) -> dict[str, Any]:
        """Make messages, each with the place where its receive begins, and where both ends wait."""
        roll = self.roll
        much = roll.random() < 0.25
        pairs = [(roll.randrange(size), roll.randrange(size)) for _ in range(roll.choice([1, 1, 2, 4]))]
        messages = []
        for _ in range(roll.choice([40, 300, 1100, 2000]) if much else roll.choice([1, 2, 3, 6, 12])):
            src, dst = roll.choice(pairs)
            dtype, count = ("u1", roll.choice([0, 1, 1, 4, 200])) if much else self._array(DTYPES, 1)
            begin = at + roll.choice([0, 0, 1, roll.randrange(_SPAN)])
            messages.append(Message(src, dst, roll.randrange(3), dtype, count, begin))
        return {"messages": _in_stream_order(messages), "late": at + _SPAN + roll.randrange(3)}

    def _anyone(self, at: int, size: int) -> dict[str, Any]:
        dtype, count = self._array(DTYPES, size)
        return {"dst": self.roll.randrange(size), "dtype": dtype, "count": count, "each": self.roll.randint(1, 5)}

    def _threads(self, at: int, size: int) -> dict[str, Any]:
        lanes = []
        for _ in range(self.roll.randint(2, 4)):
            calls = []
            for _ in range(self.roll.randint(1, 4)):
                dtype, count = self._array(LARGE_DTYPES, 4 * size)
                calls.append([self.roll.choice(["exchange", "exchange", "collective"]), dtype, count])
            lanes.append(calls)
        return {"lanes": lanes}

    def _farewell(self, at: int, size: int) -> dict[str, Any]:
        """Make messages in a group of their own, which each rank leaves as soon as it has sent and received."""
        messages = []
        for _ in range(self.roll.choice([1, 3, 8])):
            dtype, count = self._array(DTYPES, 1)
            messages.append(Message(self.roll.randrange(size), self.roll.randrange(size), 0, dtype, count, at))
        return {"messages": [m for m in messages if m.src != m.dst], "collective": self.roll.random() < 0.5}

    def _array(self, dtypes: Sequence[str], copies: int) -> tuple[str, int]:
        """Choose a dtype and a number of elements, of which so many copies will move."""
        roll, dtype = self.roll, self.roll.choice(dtypes)
        size_class = roll.random()
        if size_class < 0.35:
            nbytes = roll.choice([0, 1, 2, 3, 8, 17, 40, 100])
        elif size_class < 0.8:
            nbytes = roll.choice([edge for edge in _EDGES if edge <= 65536]) * roll.choice([1, 1, 2, 3])
        else:
            nbytes = roll.choice([*_EDGES[6:], 1_000_000, 3_200_000, 1_048_575, 3_145_730, 1_200_000])
            if dtype not in LARGE_DTYPES:
                dtype = roll.choice([name for name in dtypes if name in LARGE_DTYPES] or [dtype])
        if dtype not in LARGE_DTYPES:
            nbytes = min(nbytes, 65536)
        nbytes = min(nbytes, self.left // (4 * copies))
        self.left -= nbytes * copies
        count = nbytes // dtype_of(dtype).itemsize + roll.choice([-1, 0, 0, 1, 1])
        return dtype, max(0, count)


def _in_stream_order(messages: list[Message]) -> list[Message]:
    """Let receives of one stream begin in the order of its sends."""
    latest: dict[tuple[int, int, int], int] = {}
    found = []
    for message in messages:
        stream = message.src, message.dst, message.tag
        latest[stream] = max(message.at, latest.get(stream, 0))
        found.append(message._replace(at=latest[stream]))
    return found
