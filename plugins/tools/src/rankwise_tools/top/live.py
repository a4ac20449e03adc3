"""The live table in a terminal, with keys. Needs rich."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from textwrap import wrap
from time import monotonic
from typing import Any, ClassVar

from rankwise_tools.top.text import (
    GROUP_COLUMNS,
    RANK_COLUMNS,
    SORTS,
    Wish,
    fitting,
    footer,
    group_rows,
    rank_rows,
    title,
)
from rankwise_tools.top.view import View

#: Lines that are always there: what is around two tables, and by what ranks are sorted, which may need two.
_FRAME = 10


class Keys:
    """What keys do to what is shown."""

    #: The first letter of each order, as no two have the same.
    ORDERS: ClassVar = {name[0]: name for name in SORTS}

    def __init__(self, wish: Wish) -> None:
        self.wish, self.stopped, self.held = wish, False, False
        #: How many ranks are above those that are shown, and how many there is room for.
        self.above = self.room = 0

    def press(self, key: str, view: View) -> None:
        """Act on a key: an order, `g` for the next group, `j` and `k` for ranks below and above, space, `q` to end."""
        if key in self.ORDERS:
            self.wish = self.wish._replace(sort=self.ORDERS[key])
        elif key == "g":
            names = ["", *dict.fromkeys(row.group for row in view.groups)]
            here = names.index(self.wish.group) if self.wish.group in names else 0
            self.wish = self.wish._replace(group=names[(here + 1) % len(names)])
        elif key == "t":
            late = tuple(straggler.rank for straggler in view.stragglers)
            self.wish = self.wish._replace(ranks=() if self.wish.ranks else late)
        elif key in "jk":
            self.above += self.room if key == "j" else -self.room
        elif key == " ":
            self.held = not self.held
        elif key in ("q", "\x03", "\x1b"):
            self.stopped = True


def watch(views: Callable[[], View], wish: Wish, interval_s: float) -> None:
    """Draw again and again until a key ends it."""
    from rich.live import Live

    keys, view = Keys(wish), views()
    with _raw_keys() as pressed, Live(auto_refresh=False, screen=True) as live:

        def show() -> None:
            live.update(drawn(view, keys, live.console.width, live.console.height), refresh=True)

        show()
        while not keys.stopped:
            until = monotonic() + interval_s
            while (left := until - monotonic()) > 0 and not keys.stopped:
                for key in pressed(left):
                    keys.press(key, view)
                    show()
            view = view if keys.held or keys.stopped else views()
            show()


def drawn(view: View, keys: Keys, width: int = 1000, height: int = 1_000_000) -> Any:
    """Return what rich draws in so many columns and lines."""
    from rich.console import Group
    from rich.text import Text

    notes = footer(view)
    operations = group_rows(view, keys.wish)
    more = len(operations) - max(1, height // 3)
    if more > 0:
        notes.append(f"and {more} more operations: [g]roup shows those of one group")
        operations = operations[:-more]
    rows = rank_rows(view, keys.wish)
    words = [title(view), _orders(keys, all_fit=False), *notes]
    keys.room = max(1, height - len(operations) - _FRAME - sum(len(wrap(line, width)) for line in words))
    keys.above = max(0, min(keys.above, len(rows) - keys.room))
    shown = rows[keys.above : keys.above + keys.room]
    # Rich leaves three spaces between columns, and one at each side.
    late, red = {straggler.rank for straggler in view.stragglers}, len(view.stragglers)
    ranks = _table(*fitting(RANK_COLUMNS, shown, width - 2, 3), lambda row: int(row[0]) in late)
    groups = _table(*fitting(GROUP_COLUMNS, operations, width - 2, 3), lambda row: bool(row[-1]))
    below = [Text(line, style="bold red" if at < red else "") for at, line in enumerate(notes)]
    only = f"; only group {keys.wish.group!r}" if keys.wish.group else ""
    part = f"; {keys.above + 1} to {keys.above + len(shown)} of {len(rows)} ranks" if len(shown) < len(rows) else ""
    state = Text(f"sorted by {keys.wish.sort}{only}{part}", style="dim")
    orders = Text(_orders(keys, all_fit=not part), style="dim")
    return Group(Text(title(view), style="bold"), ranks, groups, *below, state, orders)


def _orders(keys: Keys, all_fit: bool) -> str:
    """Return what the keys do, in words."""
    sorts = " ".join(f"[{name[0]}]{name[1:]}" for name in SORTS)
    scroll = "" if all_fit else " [j] [k] down and up"
    return f"{sorts}  [g]roup s[t]ragglers{scroll} [space] {'go on' if keys.held else 'hold'} [q]uit"


def _table(heads: Any, rows: list[list[str]], stands_out: Callable[[list[str]], bool]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, is_number in heads:
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row, style="bold red" if stands_out(row) else "")
    return table


@contextmanager
def _raw_keys() -> Iterator[Callable[[float], str]]:
    """Give what returns the keys that were pressed within some seconds."""
    import os
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(within_s: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], within_s)
        return os.read(descriptor, 64).decode("utf-8", "replace") if ready else ""

    tty.setcbreak(descriptor)
    try:
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
