"""What ranks do in `test_deadlines.py`: calls that C leaves to Python, as one rank is late, or makes another call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from failing import end_of
from long_programs import LONG_CALLS, everyones_call, in_the_middle
from wire_programs import begin

import rankwise as dist
from rankwise.groups.world import current
from rankwise.store import PrefixStore
from rankwise_gloo_tcp.collectives.along import Along
from rankwise_gloo_tcp.collectives.compiled import CallHooks
from rankwise_gloo_tcp.communicator import GlooCommunicator

#: The time-out of each call, which none needs; that of the group is another.
CALL_S = 25.0


class _Watch:
    """Notes in which ways C leaves calls to Python, and whether it hands over their time-out, then one deadline."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self.ways: set[str] = set()
        self.wrong: list[str] = []
        self._tell, self._name, self._made = tell, "", list[Any]()
        make = CallHooks.deadline
        compiled = vars(import_module("rankwise_gloo_tcp.collectives.compiled"))
        explain = compiled["mismatch"]

        def deadline(hooks: Any, given: Any) -> Any:
            made = make(hooks, given)
            self._note(sys._getframe(1).f_code.co_name, given, made)
            return made

        def mismatch(*args: Any) -> Any:
            self._note("mismatch", args[-1], args[-1])
            return explain(*args)

        compare_and_run, compare = GlooCommunicator.compare_and_run, Along.compare

        def not_in_c(do: Callable[..., Any]) -> Any:
            def run(*args: Any) -> Any:
                self._let_go_on()  # C has left all of the call, with its deadline
                return do(*args)

            return run

        CallHooks.deadline = deadline  # type: ignore[method-assign]
        GlooCommunicator.compare_and_run = not_in_c(compare_and_run)  # type: ignore[method-assign]
        Along.compare = not_in_c(compare)  # type: ignore[method-assign]
        compiled["mismatch"] = mismatch

    def _note(self, way: str, given: Any, made: Any) -> None:
        self.ways.add(way)
        kept = given is self._made[-1] if self._made else CALL_S in (given, getattr(given, "timeout_s", None))
        if not kept or made.timeout_s != CALL_S:
            self.wrong.append(f"{self._name}: {way} got {given!r}")
        self._made.append(made)
        self._tell(f"{self._name} {len(self._made)}")

    def call(self, name: str, call: Callable[[], object]) -> str:
        """Make a call, and tell when it has ended; return how."""
        self._name = name
        self._made.clear()
        end = end_of(call)
        self._let_go_on()
        return end

    def _let_go_on(self) -> None:
        for number in (1, 2):
            self._tell(f"{self._name} {number}")


def left_to_python(between_hosts: bool) -> tuple[list[str], list[str], list[str]]:
    """Make all kinds of calls, for which the last rank is late; return the ways of leaving C, what is wrong, the ends.

    Args:
        between_hosts: Whether that rank is late in the middle of long calls too.
    """
    rank, size = begin()
    array = np.ones(1000, np.float32)
    small: dict[str, Callable[..., object]] = {
        "all_reduce": lambda **terms: dist.all_reduce(array, **terms),
        "barrier": lambda **terms: dist.barrier(**terms),
        "asynchronous": lambda **terms: _wait(dist.all_reduce(array, async_op=True, **terms)),
    }
    calls = {f"long {name}": partial(everyones_call, name) for name in LONG_CALLS}
    for call in (*small.values(), *calls.values()):
        for _ in range(3):  # so that C knows them
            call()
    differing = {f"differing {name}": small[name] for name in ("all_reduce", "barrier")}
    calls = small | differing | calls
    store = PrefixStore("left", current().store)
    if rank == size - 1:
        other = partial(dist.broadcast, array, 0)
        return [], [], list(_late(calls | dict.fromkeys(differing, other), store, between_hosts))
    watch = _Watch(lambda key: store.set(key, b"") if rank == 0 else None)
    ends = [watch.call(name, partial(call, timeout=CALL_S)) for name, call in calls.items()]
    dist.destroy_process_group()
    return sorted(watch.ways), watch.wrong, ends


def _late(calls: dict[str, Callable[..., object]], store: Any, between_hosts: bool) -> Iterator[str]:
    """Make calls late, and long ones late once more in their middle."""
    now, last = [""], ""
    for name, call in calls.items():
        if between_hosts and name.startswith("long") and not last.startswith("long"):
            in_the_middle(lambda: store.wait([f"{now[0]} 2"], timeout=CALL_S))
        now[0] = last = name
        store.wait([f"{name} 1"], timeout=CALL_S)
        yield end_of(partial(call, timeout=CALL_S))
    dist.destroy_process_group()


def _wait(work: Any) -> None:
    work.wait()
