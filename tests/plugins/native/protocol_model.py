"""A model of the board's protocol, which does what `board.c` says, under the rules of C11 for the order of memory.

`accesses` reads out of the C what each function does to the shared words, and in which order of memory. Ranks carry it
out step by step. A load finds the newest value of a word that the rank must know, or any later one. What must be known
is a view: how new each word is at least. A release stores the rank's view with the value, an acquire takes it over,
and the fences of all ranks take over one another's, as they follow. What ranks write into their areas without atomic
operations must be known to those who read or overwrite it: anything else is a race. `explore` goes through all states
that can be reached. (That a rank stores something because of what it has yet to load is left out: no value is
guessed.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

Accesses = dict[str, list["Access"]]
View = tuple[int, ...]

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_ACCESS = re.compile(
    r"atomic_(?P<kind>load|store)_explicit\((?P<what>[^;]*?)memory_order_(?P<order>\w+)\)"
    r"|atomic_thread_fence\(memory_order_(?P<fence>\w+)\)"
    r"|(?P<look>board_first_late)\(|(?P<arrive>board_arrive)\(|(?P<sleep>FUTEX_WAIT)\b|(?P<wake>board_wake)\("
)
#: The words, by what stands in the C for them.
_PLACES = {"board_turn_of": "turn", "SLEEPERS": "sleepers", "GO": "go", "record": "record"}
#: Functions that the ranks carry out.
FUNCTIONS = ("board_first_late", "board_arrive", "board_come_with", "board_alike", "board_doze")


class Access(NamedTuple):
    """One thing that a function does, in the order of the text.

    Attributes:
        kind: load, store, fence, look (at all turns), arrive, sleep or wake.
        place: The word; each rank has a turn and a record of its own.
        order: The order of memory, without `memory_order_`.
    """

    kind: str
    place: str = ""
    order: str = ""


class Wrong(Exception):
    """A rank reads what it must not, or sleeps for ever."""


def accesses(code: str) -> Accesses:
    """Return what each of the functions does."""
    code = _COMMENT.sub("", code)
    found = {}
    for name in FUNCTIONS:
        (body,) = re.findall(rf"^[\w ]+\b{name}\([^;]*?\)\n\{{(.*?)^\}}", code, re.DOTALL | re.MULTILINE)
        found[name] = [_access(match) for match in _ACCESS.finditer(body)]
    return found


def _access(match: re.Match[str]) -> Access:
    if match["kind"]:
        (place,) = [place for word, place in _PLACES.items() if re.search(rf"\b{word}\b", match["what"])]
        return Access(match["kind"], place, match["order"])
    return Access("fence", order=match["fence"]) if match["fence"] else Access(str(match.lastgroup))


# What a rank carries out: instructions, and where it goes from them


class Step(NamedTuple):
    """One instruction.

    Attributes:
        kind: load, await, store, fence, sleep, wake, go; or read and write, of data without atomic operations.
        place: The word.
        value: What is stored, awaited or must be read.
        order: The order of memory.
        register: Where a load puts what it finds.
        only_if: Decides, from the registers, whether it is carried out.
        to: Where a `go` leads.
    """

    kind: str
    place: str = ""
    value: int = 0
    order: str = "relaxed"
    register: str = ""
    only_if: Callable[[dict[str, int]], bool] = lambda registers: True
    to: str = ""


class _Program:
    """Writes what one rank carries out, turn after turn, in two places that alternate."""

    def __init__(self, told: Accesses, rank: int, size: int, sleeps: bool) -> None:
        self._told, self._rank, self._sleeps = told, rank, sleeps
        self._peers = [(rank + k) % size for k in range(1, size)]
        self.steps: list[Step] = []
        self.labels: dict[str, int] = {}

    def turn(self, turn: int) -> None:
        """Add a turn."""
        phase, done, doze = turn & 1, f"done{turn}", f"doze{turn}"
        self._add("write", f"data{self._rank}{phase}", turn)
        for access, _ in groupby(self._told["board_come_with"]):
            if access.kind == "arrive":
                self._arrive(turn, done, doze)
            elif not self._sleeps:  # a record is one more thing to read
                self._add(access.kind, f"{access.place}{self._rank}{phase}", turn, access.order)
        self.labels[done] = len(self.steps)
        self._add("forget")
        for peer in self._peers:
            for access, _ in groupby(() if self._sleeps else self._told["board_alike"]):
                self._add(access.kind, f"{access.place}{peer}{phase}", turn, access.order)
                self._add("check", value=turn)
            self._add("read", f"data{peer}{phase}", turn)

    def _add(self, kind: str, place: str = "", value: int = 0, order: str = "relaxed", **more: Any) -> None:
        self.steps.append(Step(kind, place, value, order, **{"register": "found" if kind == "load" else "", **more}))

    def _arrive(self, turn: int, done: str, doze: str) -> None:
        asleep = {"only_if": lambda registers: registers["asleep"] == turn}
        for access in self._told["board_arrive"]:
            match access:
                case Access("look") if self._sleeps:
                    self._look(turn, doze)
                case Access("look"):
                    self._await(turn)
                case Access("store", "turn"):
                    self._add("store", f"turn{self._rank}{turn & 1}", turn, access.order)
                case Access("load", "sleepers"):
                    self._add("load", f"sleepers{turn & 1}", order=access.order, register="asleep")
                case Access("fence"):
                    self._add("fence", order=access.order)
                case _:
                    self._add(access.kind, access.place, turn, access.order, **asleep)
        self._add("go", to=done)
        if self._sleeps:
            self.labels[doze] = len(self.steps)
            self._doze(turn, done, doze)

    def _doze(self, turn: int, done: str, doze: str) -> None:
        slept = False
        for access in self._told["board_doze"]:
            match access:
                case Access("load", "go"):
                    self._add("load", "go", order=access.order, register="go")
                case Access("look"):
                    late = doze if slept else f"sleep{turn}"
                    self._add("go", to=done, only_if=lambda registers: registers["go"] >= turn)
                    self._look(turn, late)
                    self._add("go", to=done)
                    self.labels.setdefault(late, len(self.steps))
                case Access("store"):
                    self._add("store", f"{access.place}{turn & 1}", turn, access.order)
                case _:
                    self._add(access.kind, access.place, order=access.order)
                    slept |= access.kind == "sleep"

    def _look(self, turn: int, late: str) -> None:
        (access,) = self._told["board_first_late"]
        for peer in self._peers:
            self._add("load", f"turn{peer}{turn & 1}", order=access.order)
            self._add("go", to=late, only_if=lambda registers: registers["found"] < turn)

    def _await(self, turn: int) -> None:
        (access,) = self._told["board_first_late"]
        for peer in self._peers:
            self._add("await", f"turn{peer}{turn & 1}", turn, access.order)


def programs(told: Accesses, size: int, turns: int, sleeps: bool) -> list[_Program]:
    """Return what ranks carry out that exchange data; who is early looks until all are there, or sleeps at once."""
    made = [_Program(told, rank, size, sleeps) for rank in range(size)]
    for program in made:
        for turn in range(1, turns + 1):
            program.turn(turn)
    return made


# The states


_NO_REGISTERS = tuple((name, 0) for name in ("asleep", "found", "go"))
#: What only the rank itself sees.
_UNSEEN = ("go", "check", "forget", "read", "write")


class _Rank(NamedTuple):
    """What a rank knows.

    Attributes:
        at: Its next step.
        registers: What it has loaded.
        view: How new each word is at least, and how much of the other ranks' reading and writing is over.
        loaded: What an acquiring fence would add.
        released: What a releasing fence has made known with all that is stored since.
        asleep: Whether it sleeps.
    """

    at: int
    registers: tuple[tuple[str, int], ...]
    view: View
    loaded: View
    released: View
    asleep: bool = False


class _State(NamedTuple):
    """All ranks, the values of each word with their views, who has read and written data when, and the fences' view."""

    ranks: tuple[_Rank, ...]
    words: tuple[tuple[tuple[int, View], ...], ...]
    data: tuple[tuple[tuple[int, int, bool], ...], ...]
    fences: View


def _join(*views: View) -> View:
    return tuple(map(max, *views))


def _newer(view: View, index: int, at: int) -> View:
    return (*view[:index], max(view[index], at), *view[index + 1 :])


def explore(made: list[_Program]) -> int:
    """Return the number of states that can be reached.

    Raises:
        Wrong: In one of them something is wrong.
    """
    machine = _Machine(made)
    begin = machine.begin()
    seen, pending = {begin}, [begin]
    while pending:
        state = pending.pop()
        following = [other for rank in range(len(made)) for other in machine.following(state, rank)]
        if not following and any(rank.at < len(program.steps) for rank, program in zip(state.ranks, made, strict=True)):
            raise Wrong(f"nobody can go on: {[number for number, rank in enumerate(state.ranks) if rank.asleep]} sleep")
        new = set(following) - seen
        seen |= new
        pending += new
    return len(seen)


class _Machine:
    """Carries programs out."""

    def __init__(self, made: list[_Program]) -> None:
        self._made = made
        steps = [step for program in made for step in program.steps]
        words = sorted({step.place for step in steps if step.kind in ("load", "await", "store")} | {"go"})
        self._words = {place: index for index, place in enumerate(words)}
        data = sorted({step.place for step in steps if step.kind in ("read", "write")})
        self._data = {place: index for index, place in enumerate(data)}

    def begin(self) -> _State:
        """Return the state in which nobody has done anything."""
        none = (0,) * (len(self._words) + len(self._made))
        ranks = tuple(_Rank(0, _NO_REGISTERS, none, none, none) for _ in self._made)
        return _State(ranks, ((((0, none)),),) * len(self._words), ((),) * len(self._data), none)

    def following(self, state: _State, number: int) -> Iterator[_State]:
        """Return the states that one rank's next step may lead to, and what only that rank can see of the next ones."""
        rank = state.ranks[number]
        if rank.asleep or rank.at == len(self._made[number].steps):
            return
        for after in self._stepped(state, number, self._made[number].steps[rank.at]):
            yield self._forgotten(self._settled(after, number))

    def _settled(self, state: _State, number: int) -> _State:
        """Carry out what no other rank can see."""
        program = self._made[number]
        while (rank := state.ranks[number]).at < len(program.steps):
            step = program.steps[rank.at]
            if step.only_if(dict(rank.registers)) and step.kind not in _UNSEEN:
                break
            (state,) = self._stepped(state, number, step)
        return state

    def _forgotten(self, state: _State) -> _State:
        """Forget what nobody can find any more, so that states which differ in nothing else are one."""
        words = []
        for index, values in enumerate(state.words):
            oldest = min(rank.view[index] for rank in state.ranks)
            words.append((*((0, state.fences[:0]),) * oldest, *values[oldest:]))
        return state._replace(words=tuple(words))

    def _stepped(self, state: _State, number: int, step: Step) -> Iterator[_State]:
        rank = state.ranks[number]
        registers = dict(rank.registers)
        after = rank._replace(at=rank.at + 1)
        if not step.only_if(registers):
            yield self._with(state, number, after)
        elif step.kind in ("load", "await"):
            yield from self._loaded(state, number, after, step)
        elif step.kind == "store":
            yield self._stored(state, number, after, step)
        elif step.kind in ("read", "write"):
            yield self._touched(state, number, after, step)
        elif step.kind == "fence":
            yield self._fenced(state, number, after, step)
        elif step.kind == "forget":
            yield self._with(state, number, after._replace(registers=_NO_REGISTERS))
        elif step.kind == "go":
            yield self._with(state, number, rank._replace(at=self._made[number].labels[step.to]))
        elif step.kind == "sleep":  # the kernel looks at the newest value
            newest, _ = state.words[self._words["go"]][-1]
            yield self._with(state, number, after._replace(asleep=newest == registers["go"]))
        elif step.kind == "wake":
            woken = state._replace(ranks=tuple(each._replace(asleep=False) for each in state.ranks))
            yield self._with(woken, number, after)
        elif registers["found"] != step.value:
            raise Wrong(f"rank {number} finds {registers['found']} instead of {step.value}")
        else:
            yield self._with(state, number, after)

    @staticmethod
    def _with(state: _State, number: int, rank: _Rank, **others: Any) -> _State:
        return state._replace(ranks=(*state.ranks[:number], rank, *state.ranks[number + 1 :]), **others)

    def _loaded(self, state: _State, number: int, rank: _Rank, step: Step) -> Iterator[_State]:
        index = self._words[step.place]
        for at, (value, told) in enumerate(state.words[index]):
            if at < rank.view[index] or (step.kind == "await" and value < step.value):
                continue
            view, loaded = _newer(rank.view, index, at), rank.loaded
            if step.order in ("acquire", "seq_cst"):
                view = _join(view, told)
            else:
                loaded = _join(loaded, told)
            known = dict(rank.registers)
            if step.register:
                known[step.register] = value
            after = rank._replace(view=view, loaded=loaded, registers=tuple(sorted(known.items())))
            yield self._with(state, number, after)

    def _stored(self, state: _State, number: int, rank: _Rank, step: Step) -> _State:
        index = self._words[step.place]
        values = state.words[index]
        view = _newer(rank.view, index, len(values))
        told = view if step.order in ("release", "seq_cst") else _newer(rank.released, index, len(values))
        if values[-1][0] == step.value and step.order == "relaxed":  # another has stored it, or this rank before
            return self._with(state, number, rank._replace(view=_newer(rank.view, index, len(values) - 1)))
        words = (*state.words[:index], (*values, (step.value, told)), *state.words[index + 1 :])
        return self._with(state, number, rank._replace(view=view), words=words)

    def _touched(self, state: _State, number: int, rank: _Rank, step: Step) -> _State:
        index, clock = self._data[step.place], len(self._words) + number
        writes = step.kind == "write"
        for other, at, wrote in state.data[index]:
            if (writes or wrote) and rank.view[len(self._words) + other] < at:
                raise Wrong(f"rank {number} and rank {other} race for {step.place}")
        view = _newer(rank.view, clock, rank.view[clock] + 1)
        mine = (number, view[clock], writes)
        kept = () if writes else state.data[index]  # what is known to whom overwrites it is known to whom knows of that
        data = (*state.data[:index], tuple(sorted({*kept, mine})), *state.data[index + 1 :])
        return self._with(state, number, rank._replace(view=view), data=data)

    def _fenced(self, state: _State, number: int, rank: _Rank, step: Step) -> _State:
        view, fences = rank.view, state.fences
        if step.order != "release":
            view, rank = _join(view, rank.loaded), rank._replace(loaded=(0,) * len(view))
        if step.order == "seq_cst":
            fences = view = _join(view, fences)
        released = rank.released if step.order == "acquire" else view
        return self._with(state, number, rank._replace(view=view, released=released), fences=fences)
