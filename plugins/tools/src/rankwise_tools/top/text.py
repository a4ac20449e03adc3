"""A view of a job in words: tables of plain text, and what their columns are, to draw them otherwise."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from rankwise_launch.toolbox import columns, format_nbytes, format_rate, format_seconds
from rankwise_tools.top.view import GroupRow, RankRow, View


class Wish(NamedTuple):
    """What somebody wants to see: sorted by what, and of which groups and ranks only; empty for all."""

    sort: str = "rank"
    group: str = ""
    ranks: tuple[int, ...] = ()


#: By what ranks can be sorted, with the key that does so; all but the rank from the most to the least.
SORTS: dict[str, Callable[[RankRow], float]] = {
    "rank": lambda row: -row.rank,
    "late": lambda row: row.late_s if row.late_s is not None else float("-inf"),
    "waiting": lambda row: row.waiting or 0.0,
    "calls": lambda row: row.calls_per_s,
    "bytes": lambda row: row.bytes_per_s,
    "since": lambda row: row.since_s if row.is_in_call else -1.0,
    "pending": lambda row: row.queued,
    "memory": lambda row: row.memory_nbytes,
}

#: Each with whether it is a number.
RANK_COLUMNS = (
    *(("rank", True), ("host", False), ("pid", True), ("doing", False), ("for", True), ("calls/s", True)),
    *(("bytes/s", True), ("waiting", True), ("late by", True), ("last", True), ("pending", True), ("memory", True)),
)
GROUP_COLUMNS = (
    *(("group", False), ("ranks", True), ("backend", False), ("operation", False), ("way", False)),
    *(("calls/s", True), ("bytes/s", True), ("mean", True), ("waiting", True), ("errors", True), ("waits for", True)),
)
Heads: TypeAlias = Sequence[tuple[str, bool]]

#: The columns that a narrow terminal does without, in the order in which they leave.
_LEAVING = (
    *("host", "memory", "pid", "backend", "ranks", "pending", "errors", "mean", "last", "calls/s", "for", "way"),
    *("bytes/s",),
)


def rank_rows(view: View, wish: Wish) -> list[list[str]]:
    """Return the ranks that are wanted, in the order that is."""
    rows = (r for r in view.ranks if not wish.ranks or r.rank in wish.ranks)
    rows = (r for r in rows if not wish.group or wish.group in r.groups)
    return [_rank(row) for row in sorted(rows, key=SORTS[wish.sort], reverse=True)]


def _rank(row: RankRow) -> list[str]:
    return [
        str(row.rank),
        row.host,
        str(row.pid),
        row.doing if row.is_in_call or not row.doing else f"({row.doing})",
        format_seconds(row.since_s) if row.doing else "",
        f"{row.calls_per_s:.0f}",
        format_rate(row.bytes_per_s),
        _part(row.waiting),
        "" if row.late_s is None else format_seconds(row.late_s),
        _part(row.last),
        str(row.queued),
        format_nbytes(row.memory_nbytes),
    ]


def group_rows(view: View, wish: Wish) -> list[list[str]]:
    """Return the operations of the groups that are wanted."""
    return [_group(row) for row in view.groups if not wish.group or row.group == wish.group]


def _group(row: GroupRow) -> list[str]:
    return [
        row.group,
        str(row.size),
        row.backend,
        row.op,
        row.way or "-",
        f"{row.calls_per_s:.0f}",
        format_rate(row.bytes_per_s),
        "" if row.mean_s is None else format_seconds(row.mean_s),
        _part(row.waiting),
        str(row.errors),
        "" if row.waited_for is None else f"rank {row.waited_for}",
    ]


def title(view: View) -> str:
    """Return one line about the job."""
    hosts = len({row.host for row in view.ranks})
    return f"{view.program}: {view.world_size} ranks on {hosts} host{'s' if hosts > 1 else ''}, {view.job}"


def footer(view: View) -> list[str]:
    """Return what is to be said below the tables."""
    lines = [straggler.sentence() for straggler in view.stragglers]
    if not lines:
        lines.append("nobody is waited for more than others")
    if view.silent:
        lines.append(f"no answer from ranks {_few(view.silent)}: stopped, or something holds the interpreter")
    if view.missing:
        seen = f"not seen from here: ranks {_few(view.missing)}"
        lines.append(f"{seen}; `rankwise top tcp://HOST:PORT` asks all through the store")
    lines += [f"group {name!r} has failed: {why}" for name, why in view.failures.items()]
    lines += _clocks(view.ranks)
    if view.transports:
        lines.append(
            "moving: " + ", ".join(f"{way} {format_rate(rate)}" for way, rate in sorted(view.transports.items()))
        )
    return lines


def _few(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (" ..." if len(ranks) > 8 else "")


def _clocks(rows: Iterable[RankRow]) -> list[str]:
    errors = {row.host: row.clock_error_s for row in rows if row.clock_error_s != 0.0}
    if not errors:
        return []
    told = (f"{host} {'unknown' if s is None else '+-' + format_seconds(s)}" for host, s in sorted(errors.items()))
    return ["clocks against the first host: " + ", ".join(told)]


def plain(view: View, wish: Wish, width: int = 1000) -> str:
    """Return everything as plain text, in lines of some width."""
    tables = ((RANK_COLUMNS, rank_rows(view, wish)), (GROUP_COLUMNS, group_rows(view, wish)))
    lines = "\n".join(_filled(line, width) for line in footer(view))
    fitted = [_table(*fitting(heads, rows, width)) for heads, rows in tables]
    return "\n\n".join([_filled(title(view), width), *fitted, lines])


def fitting(heads: Heads, rows: list[list[str]], width: int, between: int = 2) -> tuple[Heads, list[list[str]]]:
    """Return the columns of a table for which there is room; those that tell least go first."""
    widths = {head: max(len(head), *(len(row[i]) for row in rows), 0) for i, (head, _) in enumerate(heads)}
    leaving = [name for name in _LEAVING if name in widths]
    while leaving and sum(widths.values()) + between * (len(widths) - 1) > width:
        del widths[leaving.pop(0)]
    kept = [i for i, (name, _) in enumerate(heads) if name in widths]
    return [heads[i] for i in kept], [[row[i] for i in kept] for row in rows]


def _filled(line: str, width: int) -> str:
    return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)


def _table(heads: Heads, rows: list[list[str]]) -> str:
    return columns([[name for name, _ in heads], *rows], right=[i for i, (_, number) in enumerate(heads) if number])


def _part(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
