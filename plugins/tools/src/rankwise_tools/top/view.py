"""What the samples of all ranks say together: rates, waits, who is late. Plain data, for what shows it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rankwise_tools.recordings.arrivals import Arrival, CompleteCollective, Lateness, lateness, latest, meetings, waits
from rankwise_tools.recordings.clocks import TOGETHER, Call, Clock, align
from rankwise_tools.top.messages import Awaited, Messages, unanswered
from rankwise_tools.top.samples import Sample

#: A collective that takes longer is one in which somebody is missing.
_LONG_S = 1.0
#: How many collectives of a group are remembered, and for how long.
_MOST_MEETINGS, _REMEMBERED_S = 2048, 10.0


@dataclass(frozen=True)
class RankRow:
    """One rank now, and since the last look."""

    rank: int
    host: str
    pid: int
    #: What it is in, or was in last, and where the program has called it; for how long, or since when.
    doing: str
    since_s: float
    is_in_call: bool
    calls_per_s: float
    bytes_per_s: float
    #: Which part of the time it has waited for others; None if nobody can tell.
    waiting: float | None
    #: By how much it comes after all others, at the median; and to which part of the collectives it comes last.
    late_s: float | None
    last: float | None
    queued: int
    memory_nbytes: int
    clock_error_s: float | None
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupRow:
    """One operation on one group, all ranks together."""

    group: str
    backend: str
    size: int
    op: str
    way: str
    #: Calls a second of a rank, on average; and bytes a second of all ranks together.
    calls_per_s: float
    bytes_per_s: float
    mean_s: float | None
    #: Which part of the time in calls was waiting.
    waiting: float | None
    errors: int
    waited_for: int | None


@dataclass(frozen=True)
class Straggler:
    """A rank that the others of a group wait for.

    Attributes:
        late_s: By how much it holds them up, at the median; or for how long it has not come at all.
        held_up: How many collectives or messages it holds up.
        calls: Of how many; 0 if it has not come to the one in which others wait now.
        at: What others wait in, if they do now; else what the rank did last, or what of a message it comes late to.
        message: Whether it is waited for in messages.
    """

    rank: int
    host: str
    group: str
    late_s: float
    held_up: int
    calls: int
    at: str
    message: bool = False

    def sentence(self) -> str:
        """Say so in words."""
        who = f"rank {self.rank} on {self.host} is waited for"
        if not self.calls:
            come = "has not answered" if self.message else "has not come to"
            return f"{who}: it {come} {self.at} of group {self.group!r} for {self.late_s:.1f} s"
        where = f"; {'it comes late to' if self.message else 'seen in'} {self.at}" if self.at else ""
        calls = f"{self.calls} {'messages' if self.message else 'collectives'}"
        return (
            f"{who}: it holds up {self.held_up} of {calls} of group {self.group!r}, by "
            f"{self.late_s * 1e3:.2f} ms at the median{where}"
        )


@dataclass(frozen=True)
class View:
    """All that is shown of a job at one time."""

    job: str
    program: str
    world_size: int
    interval_s: float
    ranks: tuple[RankRow, ...]
    groups: tuple[GroupRow, ...]
    transports: Mapping[str, float]
    stragglers: tuple[Straggler, ...]
    missing: tuple[int, ...]
    silent: tuple[int, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)


class History:
    """What has been seen of a job: two looks tell rates, and some more who is late."""

    def __init__(self) -> None:
        self._before: dict[int, Sample] = {}
        #: By group: collectives that all have come to, and the last number among them.
        self._met: dict[str, deque[CompleteCollective]] = {}
        self._messages = Messages(int(_REMEMBERED_S * 1e9))

    def look(self, samples: Mapping[int, Sample], silent: Iterable[int] = ()) -> View:
        """Return what is new; `silent` are ranks that have not answered. The first time there are no rates."""
        clocks = _clocks(samples)
        late = {name: self._late(name, samples, clocks) for name in _groups(samples)}
        own = {rank: self._own(rank, sample) for rank, sample in samples.items()}
        first, waited = samples[min(samples)], self._waited()
        view = View(
            job=first["job"],
            program=first["program"],
            world_size=len(first["ranks"]),
            interval_s=max((since_s for since_s, _ in own.values()), default=0.0),
            ranks=tuple(
                _rank(sample, own[rank], late, clocks[rank], waited.get(rank) if own[rank][0] else None)
                for rank, sample in sorted(samples.items())
            ),
            groups=tuple(_operations(samples, own, late)),
            transports=_transports(samples, own),
            stragglers=(
                *_stragglers(samples, late, clocks),
                *_in_messages(samples, self._messages.look(samples, clocks)),
            ),
            missing=tuple(rank for rank in first["ranks"] if rank not in samples and rank not in set(silent)),
            silent=tuple(sorted(silent)),
            failures=_failures(samples),
        )
        self._before = dict(samples)
        return view

    def _own(self, rank: int, sample: Sample) -> tuple[float, Sample]:
        """Return how long ago a rank was looked at before, and what it showed then."""
        before = self._before.get(rank)
        if before is None or before["pid"] != sample["pid"] or before["now_ns"] >= sample["now_ns"]:
            return 0.0, sample
        return (sample["now_ns"] - before["now_ns"]) / 1e9, before

    def _late(self, name: str, samples: Mapping[int, Sample], clocks: Mapping[int, Clock]) -> dict[int, Lateness]:
        ranks = next(s["groups"][name]["ranks"] for s in samples.values() if name in s["groups"])
        if any(rank not in samples or name not in samples[rank]["groups"] for rank in ranks):
            return {}
        known = self._met.setdefault(name, deque(maxlen=_MOST_MEETINGS))
        newest = known[-1].number if known else -1
        arrivals = {rank: _arrivals(samples[rank]["groups"][name], clocks[rank], newest) for rank in ranks}
        known.extend(meetings(arrivals, ranks))
        now = max(samples[rank]["now_ns"] + clocks[rank].offset_ns for rank in ranks)
        while known and now - known[0].complete_ns > _REMEMBERED_S * 1e9:
            known.popleft()
        return lateness(known)

    def _waited(self) -> dict[int, float]:
        """Return which part of the last seconds each rank has waited, by the times at which others have come."""
        found = waits(meeting for known in self._met.values() for meeting in known)
        return {rank: min(1.0, waited_ns / whole_ns) for rank, (waited_ns, whole_ns) in found.items() if whole_ns > 0}


def _clocks(samples: Mapping[int, Sample]) -> dict[int, Clock]:
    machines = {rank: sample["clock"] or sample["host"] for rank, sample in samples.items()}
    if len(set(machines.values())) < 2:
        return dict.fromkeys(machines, Clock(0))
    calls = {
        rank: [
            Call((name, number), began_ns, ended_ns)
            for name, group in sample["groups"].items()
            for op, number, began_ns, ended_ns in group["arrivals"]
            if op in TOGETHER and ended_ns
        ]
        for rank, sample in samples.items()
    }
    return align(machines, calls, {rank: sample["day_ns"] - sample["now_ns"] for rank, sample in samples.items()})


def _arrivals(group: Mapping[str, Any], clock: Clock, after: int) -> list[Arrival]:
    return [
        Arrival(op, number, began_ns + clock.offset_ns)
        for op, number, began_ns, _ in group["arrivals"]
        if number > after
    ]


def _groups(samples: Mapping[int, Sample]) -> list[str]:
    return list(dict.fromkeys(name for _, sample in sorted(samples.items()) for name in sample["groups"]))


def _failures(samples: Mapping[int, Sample]) -> dict[str, str]:
    return {g["description"]: g["failure"] for s in samples.values() for g in s["groups"].values() if g["failure"]}


# ---------------------------------------------------------------------- ranks

_CALLS, _NBYTES, _TIME_S, _WAITING_S, _ERRORS = range(5)
_NOTHING = (0, 0, 0.0, None, 0)


def _sums(sample: Sample, column: int) -> float | None:
    """Return the sum of a column over all groups and operations; None where nobody can tell."""
    values = [figures[column] for group in sample["groups"].values() for figures in group["operations"].values()]
    known = [value for value in values if value is not None]
    return None if values and not known else float(sum(known))


def _rate(sample: Sample, own: tuple[float, Sample], column: int) -> float | None:
    since_s, before = own
    now, then = _sums(sample, column), _sums(before, column)
    return None if now is None or then is None or not since_s else max(0.0, now - then) / since_s


def _rank(
    sample: Sample,
    own: tuple[float, Sample],
    late: Mapping[str, Mapping[int, Lateness]],
    clock: Clock,
    waited: float | None,
) -> RankRow:
    step, is_in_call = _doing(sample)
    mine = [found[sample["rank"]] for found in late.values() if sample["rank"] in found]
    worst = max(mine, key=lambda each: each.cost_ns, default=None)
    waiting = _rate(sample, own, _WAITING_S)
    return RankRow(
        rank=sample["rank"],
        host=sample["host"],
        pid=sample["pid"],
        doing="" if step is None else _title(step),
        since_s=0.0 if step is None else step["age_s"],
        is_in_call=is_in_call,
        calls_per_s=_rate(sample, own, _CALLS) or 0.0,
        bytes_per_s=_rate(sample, own, _NBYTES) or 0.0,
        waiting=waited if waiting is None else min(1.0, waiting),
        late_s=None if worst is None else worst.late_ns / 1e9,
        last=None if worst is None else worst.last / worst.calls,
        queued=sum(sum(group["queued"].values()) for group in sample["groups"].values()),
        memory_nbytes=sample["memory_nbytes"],
        clock_error_s=None if clock.error_ns is None else clock.error_ns / 1e9,
        groups=tuple(group["description"] for group in sample["groups"].values()),
    )


def _doing(sample: Sample) -> tuple[Mapping[str, Any] | None, bool]:
    """Return the call that a rank has been in for longest, or else the one that has ended last."""
    pending = [step for group in sample["groups"].values() for step in group["pending"]]
    if pending:
        return max(pending, key=lambda step: step["age_s"]), True
    done = [group["last"] for group in sample["groups"].values() if group["last"] is not None]
    return min(done, key=lambda step: step["age_s"], default=None), False


def _title(step: Mapping[str, Any]) -> str:
    peer = ""
    if step["message"]:
        towards = "from" if "recv" in step["op"] else "to"
        peer = f" {towards} {'anyone' if step['peer'] is None else step['peer']}"
    return f"{step['op']} #{step['number']}{peer}{' ' + step['at'] if step['at'] else ''}"


# ---------------------------------------------------------------------- groups


def _operations(
    samples: Mapping[int, Sample], own: Mapping[int, tuple[float, Sample]], late: Mapping[str, Mapping[int, Lateness]]
) -> Iterable[GroupRow]:
    for name in _groups(samples):
        members = {rank: sample for rank, sample in samples.items() if name in sample["groups"]}
        group = next(iter(members.values()))["groups"][name]
        last = latest(late[name])
        for op in sorted({op for sample in members.values() for op in sample["groups"][name]["operations"]}):
            deltas = [_delta(sample, own[rank], name, op) for rank, sample in members.items()]
            since_s = [own[rank][0] for rank in members]
            calls, time_s = sum(d[_CALLS] for d in deltas), sum(d[_TIME_S] for d in deltas)
            errors = (sample["groups"][name]["operations"].get(op, _NOTHING)[_ERRORS] for sample in members.values())
            waits_s = [d[_WAITING_S] for d in deltas if d[_WAITING_S] is not None]
            yield GroupRow(
                group=group["description"],
                backend=group["backend"],
                size=len(group["ranks"]),
                op=op,
                way=_way(group, op),
                calls_per_s=_mean(d[_CALLS] / s for d, s in zip(deltas, since_s, strict=True) if s),
                bytes_per_s=sum(d[_NBYTES] / s for d, s in zip(deltas, since_s, strict=True) if s),
                mean_s=time_s / calls if calls else None,
                waiting=min(1.0, sum(waits_s) / time_s) if waits_s and time_s else None,
                errors=sum(errors),
                waited_for=last.rank if last is not None and op in TOGETHER else None,
            )


def _delta(sample: Sample, own: tuple[float, Sample], name: str, op: str) -> list[Any]:
    now = sample["groups"][name]["operations"].get(op, _NOTHING)
    then = own[1]["groups"].get(name, {"operations": {}})["operations"].get(op, _NOTHING)
    return [None if a is None else max(0, a - (b or 0)) for a, b in zip(now, then, strict=True)]


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def _way(group: Mapping[str, Any], op: str) -> str:
    is_message = any(word in op for word in ("send", "recv"))
    moved = group["moved_nbytes"]
    return max(moved, key=lambda way: moved[way], default="") if is_message else group["way"]


def _transports(samples: Mapping[int, Sample], own: Mapping[int, tuple[float, Sample]]) -> dict[str, float]:
    """Return how many bytes a second move on each way, all ranks together; of a board, what ranks bring to it."""
    found: Counter[str] = Counter()
    for rank, sample in samples.items():
        since_s, before = own[rank]
        for name, group in sample["groups"].items() if since_s else ():
            then = before["groups"].get(name, {"moved_nbytes": {}})["moved_nbytes"]
            for way, nbytes in group["moved_nbytes"].items():
                found[way] += max(0, nbytes - then.get(way, 0)) / since_s
            if "board" in group["way"]:
                ops = [op for op in group["operations"] if op in _AT_BOARD]
                brought = sum(_delta(sample, own[rank], name, op)[_NBYTES] for op in ops)
                found["board"] += brought / since_s
    return dict(found)


#: The operations whose bytes go through the board where there is one.
_AT_BOARD = (*TOGETHER, "broadcast", "reduce", "gather", "scatter")


def _stragglers(
    samples: Mapping[int, Sample], late: Mapping[str, Mapping[int, Lateness]], clocks: Mapping[int, Clock]
) -> Iterable[Straggler]:
    for name in late:
        yield from _absent(name, samples)
    found = []
    for name, each in late.items():
        worst = latest(each, max((clocks[rank].error_ns or 0 for rank in each), default=0))
        if worst is not None:
            group = samples[worst.rank]["groups"][name]
            at = _title(group["last"]) if group["last"] is not None else ""
            found.append((worst.cost_ns, worst, samples[worst.rank]["host"], group["description"], at))
    for _, worst, host, description, at in sorted(found, key=lambda item: -item[0]):
        yield Straggler(worst.rank, host, description, worst.late_ns / 1e9, worst.held_up, worst.calls, at)


def _absent(name: str, samples: Mapping[int, Sample]) -> Iterable[Straggler]:
    """Yield the ranks that have not come to a collective in which others have been waiting for long."""
    members = {rank: sample for rank, sample in samples.items() if name in sample["groups"]}
    waiting = [
        step
        for sample in members.values()
        for step in sample["groups"][name]["pending"]
        if step["op"] in TOGETHER and not step["message"] and step["age_s"] > _LONG_S
    ]
    if not waiting:
        return
    step = max(waiting, key=lambda step: step["age_s"])
    for rank, sample in sorted(members.items()):
        group = sample["groups"][name]
        if group["begun"][0] < step["number"]:
            yield Straggler(rank, sample["host"], group["description"], step["age_s"], 0, 0, _title(step))


def _in_messages(samples: Mapping[int, Sample], awaited: Iterable[Awaited]) -> Iterable[Straggler]:
    """Yield the ranks that others wait for in messages: those that have not answered for long, and those often late."""
    for rank, name, call, age_ns in unanswered(samples, int(_LONG_S * 1e9)):
        yield Straggler(rank, samples[rank]["host"], _described(name, samples), age_ns / 1e9, 0, 0, call, True)
    for name, each, messages in awaited:
        host, group = samples[each.rank]["host"] if each.rank in samples else "?", _described(name, samples)
        yield Straggler(each.rank, host, group, each.late_ns / 1e9, each.held_up, messages, each.late, True)


def _described(name: str, samples: Mapping[int, Sample]) -> str:
    found = (str(sample["groups"][name]["description"]) for sample in samples.values() if name in sample["groups"])
    return next(found, name)
