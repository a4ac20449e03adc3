"""A model of the board's protocol: every order in which a processor such as ARM's may carry it out, tried one by one.

A rank is a list of instructions. A processor may carry out an instruction before earlier ones, unless one of the rules
of `_must_wait` forbids it; what is carried out is seen by all at once, as ARM promises. A wait is the look that ends
it. `explore` goes through all states that can be reached, and says whether every read finds what it should and nobody
sleeps for ever. Taking out one fence must make it fail, or the fence is not needed (or the model says nothing).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

#: The places in board.c where the order matters; each may be taken out.
ORDERS = ("release of the turn", "acquire of the turns", "fence after arriving", "fence before sleeping")

Registers = dict[str, int]


class Step(NamedTuple):
    """One instruction.

    Attributes:
        kind: store, load, await, fence, sleep or wake.
        place: The word of memory.
        value: What is stored, waited for, or must be read; for a sleep the register that holds what was found.
        register: Where a load puts what it finds.
        order: "release", "acquire" or "".
        only_if: Decides, from registers, whether it is carried out; None: always.
        needs: The registers that it looks at.
    """

    kind: str
    place: str = ""
    value: Any = None
    register: str = ""
    order: str = ""
    only_if: Callable[[Registers], bool] | None = None
    needs: tuple[str, ...] = ()


class Wrong(Exception):
    """A read has found what it must not, or all sleep."""


def exchanges(size: int, turns: int, without: str = "") -> list[list[Step]]:
    """Return the programs of ranks that exchange data at the board, turn after turn, in two places that alternate."""
    release = "" if without == "release of the turn" else "release"
    acquire = "" if without == "acquire of the turns" else "acquire"
    programs: list[list[Step]] = []
    for rank in range(size):
        program: list[Step] = []
        for turn in range(1, turns + 1):
            phase = turn & 1
            program.append(Step("store", f"data{rank}{phase}", turn))
            program.append(Step("store", f"turn{rank}{phase}", turn, order=release))
            if without != "fence after arriving":
                program.append(Step("fence"))
            others = [peer for peer in range(size) if peer != rank]
            program += [Step("await", f"turn{peer}{phase}", turn, order=acquire) for peer in others]
            program += [Step("load", f"data{peer}{phase}", turn) for peer in others]
        programs.append(program)
    return programs


def sleepers(size: int, without: str = "") -> list[list[Step]]:
    """Return the programs of ranks that come to one turn, and sleep at once if others are late."""
    programs: list[list[Step]] = []
    for rank in range(size):
        others = [peer for peer in range(size) if peer != rank]
        first, second = [f"first{peer}" for peer in others], [f"second{peer}" for peer in others]

        def late(registers: Registers, names: list[str] = first) -> bool:
            return any(registers[name] < 1 for name in names)

        def last(registers: Registers, names: list[str] = first) -> bool:
            return not late(registers, names)

        def wakes(registers: Registers, names: list[str] = first) -> bool:
            return last(registers, names) and registers["asleep"] == 1

        def sleeps(registers: Registers, once: list[str] = first, again: list[str] = second) -> bool:
            return late(registers, once) and registers["found"] < 1 and any(registers[name] < 1 for name in again)

        program = [Step("store", f"turn{rank}", 1, order="release")]
        if without != "fence after arriving":
            program.append(Step("fence"))
        program += [Step("load", f"turn{peer}", register=f"first{peer}", order="acquire") for peer in others]
        program += [
            Step("load", "sleepers", register="asleep", only_if=last, needs=tuple(first)),
            Step("store", "go", 1, order="release", only_if=wakes, needs=(*first, "asleep")),
            Step("wake", only_if=wakes, needs=(*first, "asleep")),
            Step("load", "go", register="found", order="acquire", only_if=late, needs=tuple(first)),
            Step("store", "sleepers", 1, only_if=late, needs=tuple(first)),
        ]
        if without != "fence before sleeping":
            program.append(Step("fence"))
        program += [
            Step("load", f"turn{peer}", register=f"second{peer}", order="acquire", only_if=late, needs=tuple(first))
            for peer in others
        ]
        program.append(Step("sleep", "go", "found", only_if=sleeps, needs=(*first, "found", *second)))
        programs.append(program)
    return programs


def explore(programs: list[list[Step]]) -> int:
    """Return the number of states that can be reached.

    Raises:
        Wrong: In one of them something is wrong.
    """
    begin = (tuple(0 for _ in programs), tuple(() for _ in programs), (), frozenset())
    seen, pending = {begin}, [begin]
    while pending:
        state = pending.pop()
        following = _following(programs, state)
        done, _, _, asleep = state
        if not following and (asleep or any(mask != (1 << len(p)) - 1 for mask, p in zip(done, programs, strict=True))):
            raise Wrong(f"nobody can go on: {asleep} sleep")
        for other in following:
            if other not in seen:
                seen.add(other)
                pending.append(other)
    return len(seen)


def _following(programs: list[list[Step]], state: Any) -> list[Any]:
    done, registers, memory, asleep = state
    found = []
    for rank, program in enumerate(programs):
        if rank in asleep:
            continue
        for index, step in enumerate(program):
            if done[rank] >> index & 1 or any(
                not done[rank] >> earlier & 1 and _must_wait(program[earlier], step) for earlier in range(index)
            ):
                continue
            after = _carry_out(step, rank, dict(registers[rank]), dict(memory), set(asleep))
            if after is None:
                continue
            own, words, sleeping = after
            masks = (*done[:rank], done[rank] | 1 << index, *done[rank + 1 :])
            all_registers = (*registers[:rank], tuple(sorted(own.items())), *registers[rank + 1 :])
            found.append((masks, all_registers, tuple(sorted(words.items())), frozenset(sleeping)))
    return found


def _must_wait(earlier: Step, later: Step) -> bool:
    """Tell whether `later` cannot be carried out before `earlier`, which precedes it in the program."""
    if "fence" in (earlier.kind, later.kind) or {"sleep", "wake"} & {earlier.kind, later.kind}:
        return True
    if earlier.order == "acquire" or later.order == "release" or earlier.place == later.place:
        return True
    if earlier.register and earlier.register in later.needs:
        return True
    # Nothing is stored on a guess; but what follows a wait may be read on one.
    return later.kind == "store" and earlier.kind == "await"


def _carry_out(
    step: Step, rank: int, registers: Registers, memory: Registers, asleep: set[int]
) -> tuple[Registers, Registers, set[int]] | None:
    """Return what is there afterwards; None if the step cannot be carried out yet."""
    if step.only_if is not None and not step.only_if(registers):
        if step.register:
            registers[step.register] = 0
        return registers, memory, asleep
    if step.kind == "store":
        memory[step.place] = step.value
    elif step.kind == "await" and memory.get(step.place, 0) < step.value:
        return None
    elif step.kind == "load" and step.register:
        registers[step.register] = memory.get(step.place, 0)
    elif step.kind == "load" and memory.get(step.place, 0) != step.value:
        raise Wrong(f"rank {rank} finds {memory.get(step.place, 0)} in {step.place} instead of {step.value}")
    elif step.kind == "sleep" and memory.get(step.place, 0) == registers[step.value]:
        asleep.add(rank)
    elif step.kind == "wake":
        asleep.clear()
    return registers, memory, asleep
