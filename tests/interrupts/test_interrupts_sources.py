"""What the threads of a rank share is never what an interrupt of the main thread can leave half-way.

`threading.Event` and its like are Python: an interrupt as one enters them leaves their lock held, and the thread that
tells the event hangs. `Thread.is_alive` takes a thread for ended if it is interrupted. A lock that is tried may be
acquired and never released. `rankwise.basics.ending` has what to use in their place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: What runs in ranks, with the program's main thread.
PLUGINS = ("gloo_tcp", "mpi", "nccl", "network", "ray", "stores", "torch", "watch")
#: Where it is known: ends that hold signal handlers back, locks that are let go wherever an interrupt comes, and one
#: that only a thread tries on which no signal handler runs.
KNOWN = {
    "plugins/nccl/src/rankwise_nccl/group/watchdog.py": ["is_alive"],
    "plugins/nccl/src/rankwise_nccl/queues/queue.py": ["a lock that is tried"],
    "plugins/nccl/src/rankwise_nccl/queues/together.py": ["is_alive"],
    "plugins/stores/src/rankwise_stores/shared_file.py": ["a lock that is tried"],
}
HALF_WAY = {"Event", "Semaphore", "BoundedSemaphore", "Barrier"}


def sources() -> list[Path]:
    folders = [ROOT / "core", *(ROOT / "plugins" / name for name in PLUGINS)]
    return sorted(path for folder in folders for path in folder.rglob("*.py") if "build" not in path.parts)


def found_in(text: str) -> Iterator[str]:
    """Name what a module uses that an interrupt can leave half-way."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "threading" and name in HALF_WAY:
            yield f"threading.{name}"
        elif name == "Condition" and not node.args:
            yield "threading.Condition with a lock of its own"
        elif name == "is_alive":
            yield "is_alive"
        elif name == "acquire" and any(word.arg == "blocking" for word in node.keywords):
            yield "a lock that is tried"


def test_threads_share_nothing_that_an_interrupt_leaves_half_way() -> None:
    found = {str(path.relative_to(ROOT)): list(found_in(path.read_text(encoding="utf-8"))) for path in sources()}
    assert len(found) > 200
    assert {path: words for path, words in found.items() if words} == KNOWN


def test_what_it_would_find() -> None:
    text = "threading.Event(); threading.Condition(); t.is_alive(); lock.acquire(blocking=False)"
    assert len(list(found_in(f"{text}; threading.Condition(lock); lock.acquire(timeout=1)"))) == 4
