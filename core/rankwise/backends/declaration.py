"""`BackendSpec`: a backend as its plugin declares it, before anything of it is loaded.

It says what the backend can do, whether it can run here, and how to make a `Communicator`, which does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rankwise.backends.capability import Capabilities
from rankwise.backends.cells import Availability

if TYPE_CHECKING:
    from rankwise.backends.communicator import Communicator
    from rankwise.backends.contract import Context
    from rankwise.collective.algorithms.table import AlgorithmChoice
    from rankwise.store import Store

__all__ = [
    "API_VERSION",
    "Availability",
    "BackendSpec",
    "Check",
    "Explanation",
    "IN_THREADS",
    "OLDEST_API_VERSION",
    "Runtime",
]

API_VERSION = 1
"""The version of the contract of backends. A plugin states, as a literal, the one that it was written for."""

OLDEST_API_VERSION = 1
"""The oldest version of the contract that is still taken; docs/versions.md says how long one is."""

IN_THREADS = ("threads",)
"""What a backend declares as its `launch` if its ranks are threads of one process."""


class Runtime(NamedTuple):
    """What a backend's own runtime (such as MPI) knows about this process before any rendezvous.

    Attributes:
        rank: This process's rank.
        size: How many ranks there are.
        store: A store that all of them share for as long as the runtime is there, if it has one.
        job: Returns what tells the processes of this runtime from all others, once all of them have called it within so
            many seconds; None where no group is made of ranks that are named otherwise than here.
    """

    rank: int
    size: int
    store: Store | None = None
    job: Callable[[float], str] | None = None


class Check(NamedTuple):
    """One thing that a backend has looked at for `rankwise doctor`.

    Attributes:
        good: Whether it is as it should be; None for what is only worth knowing.
        text: What it is, and how.
        remedy: What would help.
    """

    good: bool | None
    text: str
    remedy: str = ""


class Stage(NamedTuple):
    """A part of what a backend's own algorithm does, for predictions.

    Attributes:
        op: An operation of `rankwise.collective.algorithms`, and its algorithm; both empty for bytes that only pass
            through a rank's memory.
        algorithm: The algorithm.
        size: How many ranks take part; where several on one host do the same side by side, as many as there are hosts.
        nbytes: The bytes of the whole array, as all that share a link together have it.
    """

    op: str
    algorithm: str
    size: int
    nbytes: int


class Explanation(NamedTuple):
    """Which algorithm a backend takes for an operation, as `rankwise explain` shows it.

    Attributes:
        table: The lines that all ranks go by; the first that fits counts.
        taken: The line that does.
        meanings: What the names of the table mean.
        like: The algorithm of `rankwise.collective.algorithms` that sends the same messages; empty if none does.
        how: Words after the backend's name, such as whether compiled parts run; they begin with a blank.
        stages: Where `like` is empty, what is done instead, one after the other; empty where no model knows.
    """

    table: Sequence[AlgorithmChoice]
    taken: AlgorithmChoice
    meanings: Mapping[str, str]
    like: str = ""
    how: str = ""
    stages: Sequence[Stage] = ()


@dataclass(frozen=True)
class BackendSpec:
    """A backend as its plugin declares it. Making one must import nothing heavy.

    Attributes:
        name: The backend's name; the key of its entry point.
        api_version: The version of this contract that the plugin was written for, as a literal, or the oldest and the
            newest with which it was tried: `(1, 2)`.
        capabilities: What it can do.
        create: Makes the communicator of one group. Called by all members; it may talk to them through the
            context's store and must end by the context's time-out.
        availability: Tells whether it can run here.
        runtime: Tells rank and size where the backend's own runtime knows them; None where a rendezvous is needed.
            It gets the seconds within which all processes must have begun that runtime.
        launch: The command line that starts `{size}` processes under that runtime, for the conformance kit.
        variants: Ways in which it can do its work, such as its transports, by name, each with the variables of the
            environment that choose it; `{rank}` in a value stands for the rank. The conformance kit proves each.
        checks: Looks at what the backend needs, for `rankwise doctor` alone; it may take a few seconds.
        explain: Tells which algorithm an operation on so many bytes takes among so many ranks on each host, without
            making a group.
        core: The MAJOR.MINOR of rankwise that the plugin belongs to, for one that uses more than is public.
        meets: What the backends of all ranks must have in common to understand each other, such as the version of
            what they send; by default their distribution and its version.
        load: Imports what `create` needs, while other ranks are still on their way, or before ranks are forked
            (`--preload`), so it starts no thread. An error does no harm: `create` meets it again.
        attends: Whether the backend ends all that the core calls (`create`, `runtime`, `availability`, `abort` and
            `close`) in time by itself, and is to be called by the thread that needs it. By default the core calls
            these on another thread, and leaves one behind that does not return.
    """

    name: str
    api_version: int | tuple[int, int]
    capabilities: Capabilities
    create: Callable[[Context], Communicator]
    availability: Callable[[], Availability] = field(default=partial(Availability, True))  # Python always can
    runtime: Callable[[float], Runtime] | None = None
    launch: tuple[str, ...] = field(default=())
    variants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    explain: Callable[[str, int, Sequence[int]], Explanation] | None = None
    core: str = ""
    checks: Callable[[], Iterable[Check]] = field(default=tuple)
    load: Callable[[], object] = tuple
    meets: str = ""
    attends: bool = False
