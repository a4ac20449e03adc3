"""Which rank made another call than the rest first: judged from the records of all ranks, as far as there are any."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankwise_tools.recordings.records import Group, Operation, Record

#: Collectives to which all ranks bring as much.
_ALIKE = ("all_reduce", "broadcast", "reduce")
_MOST_FINDINGS = 4
#: What a record says of a rank that was not in the middle of anything when it was written.
_OVER = ("the process ended", "the groups were destroyed")


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        kind: mismatch, missing, behind, message or stuck.
        group: The group's name.
        ranks: Who is the cause; empty if that cannot be said.
        waiting: The cause is itself waiting for somebody else, so there is another cause.
        when_ns: When others first did what these ranks did not, by the clock of the day.
        text: All of it, in words.
    """

    kind: str
    group: str
    ranks: tuple[int, ...]
    waiting: bool
    when_ns: int
    text: str


def analyse(records: Mapping[int, Record]) -> str:
    """Return paragraphs that say which rank first made another call than the rest, and what else is wrong."""
    found = findings(records)
    missing = [rank for rank in next(iter(records.values())).ranks if rank not in records]
    if found:
        parts = [finding.text for finding in found[:_MOST_FINDINGS]]
        if len(found) > _MOST_FINDINGS:
            parts.append(f"{len(found) - _MOST_FINDINGS} more groups or messages hang after that.")
        if all(finding.waiting for finding in found):
            parts.append("No rank here can go on: they wait for each other.")
        return "\n\n".join(parts)
    counts = Counter(op.group for op in records[min(records)].operations if not op.message)
    most = max(counts, key=lambda name: counts[name], default="default")
    what = _last_in_common(records, most)
    lacking = f" There is no record of {_ranks(missing)}." if missing else ""
    return f"All ranks made the same calls{what}, and none waits for another.{lacking}"


def findings(records: Mapping[int, Record]) -> list[Finding]:
    """Return what is wrong: first what waits for nothing else, and of that the earliest."""
    groups: dict[str, Group] = {}
    for rank in sorted(records):
        for name, group in records[rank].groups.items():
            groups.setdefault(name, group)
    found = [finding for group in groups.values() if (finding := _Collectives(records, group).judge()) is not None]
    found += _messages(records)
    return sorted(found, key=lambda finding: (finding.waiting, finding.kind == "stuck", finding.when_ns))


class _Collectives:
    """The collectives of one group on all ranks."""

    def __init__(self, records: Mapping[int, Record], group: Group) -> None:
        self.records, self.group = records, group
        self.missing = [rank for rank in group.ranks if rank not in records]
        #: Those that still know the group; who has long destroyed it says nothing any more.
        self.seen = {r: records[r].groups[group.name] for r in group.ranks if group.name in _groups(records, r)}
        self.calls = {rank: _calls(records[rank], group.name) for rank in self.seen}

    def judge(self) -> Finding | None:
        """Return what is wrong with them, if anything is."""
        return self._mismatch() or self._missing() or self._behind() or self._stuck()

    def _mismatch(self) -> Finding | None:
        for number in sorted({number for calls in self.calls.values() for number in calls}):
            made = {rank: calls[number] for rank, calls in self.calls.items() if number in calls}
            kinds = Counter(map(_signature, made.values()))
            if len(kinds) > 1:
                return self._parted(number, made, kinds)
        return None

    def _parted(self, number: int, made: Mapping[int, Operation], kinds: Counter[tuple[object, ...]]) -> Finding:
        (common, most), (_, second) = kinds.most_common(2)
        odd = tuple(rank for rank, op in made.items() if _signature(op) != common) if most > second else ()
        sides = [[rank for rank in made if _signature(made[rank]) == kind] for kind in reversed(kinds)]
        sides.sort(key=lambda ranks: not set(ranks) & set(odd))
        calls = ", while ".join(f"{_ranks(side)} called {_what(made[side[0]])}{made[side[0]].at}" for side in sides)
        verdict = f"{_ranks(odd)} made another call than the rest" if odd else "the ranks made different calls"
        return self._finding("mismatch", odd, _earliest(self.records, made), f"{verdict}: as #{number}, {calls}")

    def _missing(self) -> Finding | None:
        waiting = self._unfinished(-1)
        if not self.missing or not waiting:
            return None
        text = (
            f"there is no record of {_ranks(self.missing)}, which died, was killed, or could not write one; "
            f"{self._doing(waiting)}"
        )
        return self._finding("missing", tuple(self.missing), _earliest(self.records, waiting), text)

    def _behind(self) -> Finding | None:
        least = min((group.begun for group in self.seen.values()), default=-1)
        waiting = self._unfinished(least)
        if not waiting:
            return None
        last = [rank for rank, group in self.seen.items() if group.begun == least]
        # Who is still in the operation that all have begun is held up by others, or by the network.
        free = [rank for rank in last if not self._in_call(rank, least)]
        if not free:
            return None
        number = min(op.number for op in waiting.values())
        never = f"{_ranks(free)} never called"
        named = next(op for op in waiting.values() if op.number == number)
        text = f"{never} {named.op} #{number}. {_capital(self._doing(waiting))}. {self._whereabouts(free, least)}"
        return self._finding("behind", tuple(free), _earliest(self.records, waiting), text)

    def _stuck(self) -> Finding | None:
        waiting = {rank: op for rank, op in self._unfinished(-1).items() if op.state != "issued"}
        if not waiting:
            return None
        number = min(op.number for op in waiting.values())
        inside = {rank: op for rank, op in waiting.items() if op.number == number}
        text = f"all ranks have begun {_what(next(iter(inside.values())))} #{number}, but {self._doing(inside)}"
        return self._finding("stuck", (), _earliest(self.records, inside), text)

    def _unfinished(self, after: int) -> dict[int, Operation]:
        """Return for each rank the first collective after a number that it has begun and not ended well."""
        found = {}
        for rank, calls in self.calls.items():
            open_ = [op for number, op in calls.items() if number > max(after, self.seen[rank].finished)]
            left = [op for op in open_ if op.state != "done"]
            if left:
                found[rank] = min(left, key=lambda op: op.number)
        return found

    def _in_call(self, rank: int, number: int) -> bool:
        op = self.calls[rank].get(number)
        return op is not None and op.pending

    def _doing(self, waiting: Mapping[int, Operation]) -> str:
        """Say who stands where: "ranks 0 and 1 are in all_reduce #17 at train.py:45"."""
        places: dict[tuple[str, str, str], list[int]] = {}
        for rank, op in waiting.items():
            verb = {"failed": "failed in", "issued": "had issued"}.get(op.state, "was in")
            places.setdefault((verb, f"{op.op} #{op.number}", op.at), []).append(rank)
        told = []
        for (verb, what, at), ranks in places.items():
            plural = verb.replace("was", "were") if len(ranks) > 1 else verb
            age_s = max(_age_s(self.records[rank], waiting[rank]) for rank in ranks)
            since = "" if verb == "failed in" else f" for {age_s:.1f} s"
            told.append(f"{_ranks(ranks)} {plural} {what}{at}{since}")
        return " and ".join(told)

    def _whereabouts(self, ranks: Sequence[int], number: int) -> str:
        told = []
        for rank in ranks:
            op = self.calls[rank].get(number)
            last = f"did last on this group was {op.op} #{number}{op.at}" if op else "did on this group is not known"
            if number < 0:
                last = "did on this group was nothing yet"
            told.append(f"What rank {rank} {last}; {_place(self.records[rank], self.group.name)}.")
        return " ".join(told)

    def _finding(self, kind: str, ranks: tuple[int, ...], when_ns: int, text: str) -> Finding:
        held = any(_held(self.records[rank], self.group.name) for rank in ranks if rank in self.records)
        failure = next((group.failure for group in self.seen.values() if group.failure), "")
        ended = f" The group ended with {failure}" if failure else ""
        whole = f"Group {self.group.description!r}: {text.rstrip('.')}.{ended}".rstrip(".") + "."
        return Finding(kind, self.group.name, ranks, held, when_ns, whole)


def _messages(records: Mapping[int, Record]) -> Iterator[Finding]:
    """Yield the blocking messages that nobody answers."""
    for rank, record in sorted(records.items()):
        for op in record.operations:
            if not (op.message and op.state == "running"):
                continue
            towards = "from" if "recv" in op.op else "to"
            whom = "anyone" if op.peer is None else f"rank {op.peer}"
            text = f"rank {rank} was in {op.op} #{op.number} {towards} {whom}{op.at} for {_age_s(record, op):.1f} s"
            text = f"Group {record.groups[op.group].description!r}: {text}"
            when = _earliest(records, {rank: op})
            if op.peer is None:
                yield Finding("message", op.group, (), False, when, f"{text}, and nobody has sent anything.")
            elif op.peer not in records:
                gone = f"there is no record of rank {op.peer}, which died, was killed, or could not write one"
                yield Finding("missing", op.group, (op.peer,), False, when, f"{text}, but {gone}.")
            else:
                peer = records[op.peer]
                did = _answers(rank, op, record, peer)
                held = _held(peer, "")
                place = _place(peer, "")
                yield Finding(
                    "message", op.group, (op.peer,), held, when, f"{text}; rank {op.peer} {did}, and {place}."
                )


def _answers(rank: int, op: Operation, record: Record, peer: Record) -> str:
    """Say how many messages the peer has for an operation, as far as the rings reach back."""

    def between(who: Record, other: int, kind: str) -> int:
        same = [o for o in who.operations if o.message and o.group == op.group and o.tag == op.tag and o.peer == other]
        return sum(kind in o.op for o in same)

    ours, theirs = ("recv", "send") if "recv" in op.op else ("send", "recv")
    begun, answered = between(record, peer.rank, ours), between(peer, rank, theirs)
    verb = {"send": "sent", "recv": "received"}
    if _overwritten(record) or _overwritten(peer):
        return "has done more than its record holds"
    return (
        f"has {verb[theirs]} {answered} of the {begun} that rank {rank} has begun to {ours.replace('recv', 'receive')}"
    )


def _overwritten(record: Record) -> bool:
    numbers = [op.number for op in record.operations if op.message]
    return bool(numbers) and min(numbers) > 0


def _groups(records: Mapping[int, Record], rank: int) -> Mapping[str, Group]:
    return records[rank].groups if rank in records else {}


def _calls(record: Record, group: str) -> dict[int, Operation]:
    return {op.number: op for op in record.operations if op.group == group and not op.message}


def _signature(op: Operation) -> tuple[object, ...]:
    return (op.op, op.dtype, op.nbytes) if op.op in _ALIKE else (op.op, op.dtype)


def _what(op: Operation) -> str:
    return f"{op.op} of {op.nbytes} bytes of {op.dtype}" if op.dtype else op.op


def _age_s(record: Record, op: Operation) -> float:
    return max(0, record.written_ns - op.began_ns) / 1e9


def _earliest(records: Mapping[int, Record], made: Mapping[int, Operation]) -> int:
    return min(op.began_ns + records[rank].clock_offset_ns for rank, op in made.items())


def _held(record: Record, group: str) -> bool:
    """Tell whether a rank was in a call that has nothing to do with a group."""
    return any(op.state == "running" and (op.message or op.group != group) for op in record.operations)


def _place(record: Record, group: str) -> str:
    """Say where a rank was when its record was written."""
    if record.reason in _OVER:
        return "it had left by then"
    for op in reversed(record.operations):
        if op.state == "running" and (op.message or op.group != group):
            towards = "" if not op.message or op.peer is None else f" with rank {op.peer}"
            return f"it was in {op.op} #{op.number}{towards} on group {record.groups[op.group].description!r}{op.at}"
    for name, stack in record.stacks:
        if name == "MainThread":
            own = next((frame for frame in stack if f"{os.sep}rankwise{os.sep}" not in frame), None)
            return f"its main thread was at {os.path.basename(own)}" if own else "it was not in the program"
    return "where it was is not known"


def _last_in_common(records: Mapping[int, Record], group: str) -> str:
    begun = [record.groups[group].begun for record in records.values() if group in record.groups]
    least = min(begun, default=-1)
    if least < 0:
        return ""
    op = next((calls[least] for calls in (_calls(r, group) for r in records.values()) if least in calls), None)
    description = next(record.groups[group].description for record in records.values() if group in record.groups)
    return f" up to {op.op} #{least} on group {description!r}" if op else ""


def _ranks(ranks: Sequence[int]) -> str:
    names = [str(rank) for rank in sorted(ranks)]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
