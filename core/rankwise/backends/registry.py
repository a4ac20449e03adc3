"""From a name to a backend: what was registered in this process, then the entry point of exactly that name.

Nothing else is ever loaded, so a broken plugin disturbs only programs that ask for it; listing goes by the metadata of
the installed distributions. What a plugin is asked is asked once, and kept: its declaration, that it is broken, and
whether it can run here. So no answer costs a program more than once, however long the plugin takes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rankwise.backends import discovery
from rankwise.backends.capability import Capabilities, Others
from rankwise.backends.cells import Availability
from rankwise.backends.declaration import BackendSpec, Runtime
from rankwise.backends.discovery import PluginFault, Supervision, run_plugin
from rankwise.backends.vocabulary import DECLARED_DEVICES, not_a_name
from rankwise.basics import entry_points
from rankwise.basics.arguments import with_article
from rankwise.basics.deadline import Deadline
from rankwise.basics.entry_points import Point, load, same
from rankwise.basics.interrupts import held
from rankwise.basics.loading import loading
from rankwise.basics.tracebacks import anew
from rankwise.basics.version import __version__, series
from rankwise.errors import BackendNotFoundError, DistError, PluginError

if TYPE_CHECKING:
    from rankwise.backends.communicator import Communicator
    from rankwise.backends.contract import Context

#: Backends that this project ships beside the core, and the distribution that brings each.
KNOWN = {"gloo": "rankwise-gloo-tcp", "mpi": "rankwise-mpi", "nccl": "rankwise-nccl"}

#: How long a backend may look whether it can run here.
_ANSWER_S = 30.0


class Registry:
    """All backends that this process can name."""

    def __init__(self) -> None:
        self._in_process: dict[str, BackendSpec] = {}
        self._loaded: dict[str, BackendSpec] = {}
        self._broken: dict[str, tuple[list[Point], PluginError]] = {}
        self._answers: dict[str, Availability] = {}
        self._terms: dict[str, str] = {}
        self._registering = threading.RLock()
        self._asking: dict[str, threading.RLock] = {}  # one for each name: a slow plugin keeps nobody else waiting
        #: Another object whenever an answer about any backend may have changed.
        self.generation = object()

    def register(self, spec: BackendSpec, replace: bool = False) -> None:
        """Register a backend in this process.

        Raises:
            ValueError: The name is taken, by this process or an installed plugin, and `replace` is false; or something
                is wrong with the declaration.
        """
        from rankwise.backends.validation import checked

        name = getattr(spec, "name", None)
        if reason := not_a_name(name):
            raise ValueError(f"{name!r} cannot be the name of a backend: {reason}")
        try:
            spec = self._bound(run_plugin("its declaration cannot be read", lambda: checked(spec.name, spec)))
        except PluginFault as fault:
            raise ValueError(f"backend {name!r} cannot be registered: {fault}") from fault.__cause__
        with self._registering:
            if not replace and (owner := self.provider(spec.name)):
                taken = "in this process" if spec.name in self._in_process else f"by {owner}"
                raise ValueError(f"backend {spec.name!r} is already registered {taken}; replace=True replaces it")
            self._in_process[spec.name] = spec
            self._forget_answer(spec.name)

    def unregister(self, name: str) -> None:
        """Forget a backend that was registered in this process."""
        del self._in_process[name]
        self._forget_answer(name)

    def names(self) -> list[str]:
        """Return the names of all installed and registered backends, without loading any."""
        return sorted({*self._in_process, *(point.name for point in discovery.points_of())})

    def get(self, name: str) -> BackendSpec:
        """Return the backend called `name`, loading its plugin if need be.

        Raises:
            BackendNotFoundError: There is none.
            PluginError: Its plugin is broken, clashes with another, or is written for another API version.
        """
        name = str(name)  # a `Backend` is spelled otherwise in messages
        spec = self._in_process.get(name) or self._loaded.get(name)
        if spec is None:
            # What a signal's handler raises meanwhile is no fault of the plugin.
            with self._asking.setdefault(name, threading.RLock()), held:
                spec = self._loaded.get(name)
                if spec is None:
                    spec = self._loaded[name] = self._load(name)
                    self.generation = object()
        return spec

    def tables(self) -> Iterator[Capabilities]:
        """Yield the capability table of every backend that can be used: first those that are loaded, then our own.

        No other is imported into the program: rankwise-launch asks the rest, each in a process of its own. Without it
        they have no table here, unless the program names them.
        """
        found = discovery.owners()
        early = list(dict.fromkeys((*self._in_process, *self._loaded, *KNOWN)))
        own = [name for name in early if name in self._in_process or name in self._loaded or _is_ours(name, found)]
        for name in own:
            if self.problem(name) is None:
                yield self.get(name).capabilities
        others = {name: " and ".join(owners) for name, owners in sorted(found.items()) if name not in own}
        if others:
            with suppress(PluginError):
                yield from entry_points.part("answers", "rankwise-launch")(others)

    def others(self) -> Others:
        """Return what can be told of the backends without loading or probing any."""
        specs = {**self._loaded, **self._in_process}
        asked = [spec.capabilities for name, spec in specs.items() if name in self._answers]
        return Others(asked, discovery.names_seen - self._broken.keys())

    def problem(self, name: str) -> PluginError | BackendNotFoundError | None:
        """Return why `name` cannot be loaded, or None if it can."""
        try:
            self.get(name)
        except (PluginError, BackendNotFoundError) as error:
            return error
        return None

    def availability(self, name: str, timeout_s: float = _ANSWER_S) -> Availability:
        """Tell whether `name` can run here, and if not why; never raises. A "yes" is kept, a "no" asked for again.

        `timeout_s` is for how long the backend may look.
        """
        name = str(name)
        if not self._answers.get(name):
            self._answers.pop(name, None)
        return self._here(name, min(timeout_s, _ANSWER_S))

    def load(self, name: str) -> None:
        """Have a backend import what it makes communicators with; an error shows when it makes one."""
        with suppress(PluginFault):
            run_plugin("it cannot be loaded", self.get(name).load)

    def runtime(self, name: str, timeout_s: float) -> Runtime | None:
        """Have a backend's own runtime begin, and return what that knows of this process; None if it has none.

        Raises:
            PluginError: It has failed, or returned something else.
            DistError: What the plugin raises itself for its users.
        """
        ask = self.get(name).runtime
        if ask is None:
            return None
        from rankwise.backends.validation import checked_runtime

        def asked() -> Runtime | DistError:
            try:
                return checked_runtime(
                    self.supervision(name).call("runtime", lambda: ask(timeout_s), Deadline(timeout_s))
                )
            except DistError as error:
                return error

        try:
            answer = run_plugin("`runtime` has failed", asked)
        except PluginFault as fault:
            error = PluginError(f"backend {name!r}, from {self.provider(name)}: {fault}")
            raise error from fault.__cause__
        if isinstance(answer, DistError):
            raise answer
        return answer

    def communicator(self, name: str, context: Context) -> Communicator:
        """Have a backend make the communicator of a group.

        Raises:
            PluginError: It has returned something else.
            DistTimeoutError: It has not returned in time.
        """
        from rankwise.backends.communicator import Communicator  # which a process without groups need not load

        supervision, create = self.supervision(name), self.get(name).create
        made = supervision.call(
            "create",
            lambda: create(context),
            *(context.deadline, f"making group {context.name!r}", context.look),
            undo=Communicator.shutdown,
        )
        if not isinstance(made, Communicator):
            returned = "nothing" if made is None else with_article(type(made).__name__)
            raise PluginError(
                f"group {context.name!r}: `create` of backend {name!r}, from {self.provider(name)}, "
                f"has returned {returned}, but must return a Communicator"
            )
        made.supervision = supervision
        return made

    def supervision(self, name: str) -> Supervision:
        """Return what calls the functions of a backend."""
        return Supervision(self.get(name).attends, lambda: f"backend {name!r}, from {self.provider(name)}")

    def providers(self, name: str = "") -> dict[str, str]:
        """Return the distribution and version that brings each installed backend, or one, or "this process"."""
        found: dict[str, list[str]] = {}
        for point in discovery.points_of(name):
            found.setdefault(point.name, []).append(point.owner)
        installed = {each: " and ".join(owners) for each, owners in found.items()}
        return {**installed, **dict.fromkeys(self._in_process, "this process")}

    def provider(self, name: str) -> str:
        """Return what brings `name`; nothing if it is not there."""
        return self.providers(name).get(name, "")

    def terms(self, name: str) -> str:
        """Return what all ranks of a group must have in common about a backend."""
        if name not in self._terms:
            spec = self.get(name)
            owner = self._brought(name)
            distribution = owner.rpartition(" ")[0]
            if spec.core and distribution == KNOWN.get(name):  # ours have the core's MAJOR.MINOR, and keep to it
                owner = f"{distribution} {spec.core}"
            meets = spec.meets or owner
            self._terms[name] = f"{meets}, contract {spec.api_version}, table {spec.capabilities.digest()}"
        return self._terms[name]

    def _brought(self, name: str) -> str:
        """Return what brings a backend, by a quick look where that is enough."""
        if name in self._in_process:
            return "registered by the program"
        owners = [owner for found, _, owner in entry_points.declared_by(discovery.ENTRY_POINT_GROUP) if found == name]
        return owners[0] if len(owners) == 1 and _setting(name) not in os.environ else self.provider(name)

    def _here(self, name: str, timeout_s: float) -> Availability:
        """Return what a backend has answered, or ask it."""
        answer = self._answers.get(name)
        return self._ask(name, timeout_s) if answer is None else answer

    def _ask(self, name: str, timeout_s: float) -> Availability:
        with self._asking.setdefault(name, threading.RLock()), held:
            if (kept := self._answers.get(name)) is not None:
                return kept  # another thread has asked meanwhile
            if (problem := self.problem(name)) is not None:
                return Availability(False, str(problem), problem.remedy)
            from rankwise.backends.validation import checked_availability

            probe, within = self.get(name).availability, Deadline(timeout_s)
            try:
                answer = run_plugin(
                    "its availability check failed",
                    lambda: checked_availability(self.supervision(name).call("availability", probe, within)),
                )
            except PluginFault as fault:
                answer = Availability(False, str(fault))
            self._answers[name] = answer
            self.generation = object()
            return answer

    def _forget_answer(self, name: str) -> None:
        self._answers.pop(name, None)
        self._terms.pop(name, None)
        self.generation = object()

    def _bound(self, spec: BackendSpec) -> BackendSpec:
        """Let a table know whether its backend can run here, and questions which devices it knows."""
        DECLARED_DEVICES.update(spec.capabilities.devices)
        return replace(spec, capabilities=replace(spec.capabilities, here=lambda: self._here(spec.name, _ANSWER_S)))

    def _load(self, name: str) -> BackendSpec:
        value = None if _setting(name) in os.environ else discovery.quickly(name)
        points: list[Point] = []
        if value is None or name in self._broken:
            points = discovery.points_of(name)
            if not points:
                raise BackendNotFoundError(*self._not_found(name))
            found, error = self._broken.get(name, ([], None))
            if error is not None and found == points:
                raise anew(error)
            value = _chosen(name, points).value
        try:
            return self._bound(_declaration(name, value))
        except PluginFault as fault:
            points = points or discovery.points_of(name)
            point = next((p for p in points if p.value == value), Point(name, value, value, ""))
            because = f"{fault}{_belonging(name, point, fault)}"
            error = PluginError(f"backend {name!r} of {point.owner} cannot be used: {because}")
            self._broken[name] = points, error
            raise error from fault.__cause__

    def _not_found(self, name: str) -> tuple[str, str]:
        points = discovery.points_of()
        names = sorted({*self._in_process, *(point.name for point in points)})
        remedy = f"pip install {KNOWN[name]}" if name in KNOWN else ""
        parts = [f"no backend {str(name)!r} is installed (installed: {', '.join(names) or 'none'})"]
        for point in points:
            if point.name.lower() == name:
                parts.append(f"{point.owner} has one called {point.name!r}, but {not_a_name(point.name)}")
        if name not in KNOWN:
            import difflib  # only now: few programs misspell a backend

            near = difflib.get_close_matches(name, [*names, *KNOWN], n=1)
            parts += [f"did you mean {near[0]!r}?"] if near else []
        return "; ".join(parts + ([remedy] if remedy else [])), remedy


def _is_ours(name: str, owners: Mapping[str, list[str]]) -> bool:
    return [owner.rpartition(" ")[0] for owner in owners.get(name, ())] == [KNOWN.get(name)]


def _setting(name: str) -> str:
    """Return the variable that chooses between several distributions that bring one name."""
    return f"RANKWISE_BACKEND_{name.upper()}"


def _chosen(name: str, points: list[Point]) -> Point:
    """Return the entry point to take: the only one, or the one that the setting names.

    Raises:
        PluginError: There are several and no choice, or the choice is none of them.
    """
    variable = _setting(name)
    wish = os.environ.get(variable, "").strip()
    claimed = f"backend {name!r} is claimed by {' and '.join(point.owner for point in points)}"
    if wish:
        for point in points:
            if same(point.distribution, wish):
                return point
        raise PluginError(f"{variable} names {wish!r}, but {claimed}", f"set {variable} to one of these, or to nothing")
    if len(points) == 1:
        return points[0]
    names = list(dict.fromkeys(point.distribution for point in points))
    if len(names) == 1:
        raise PluginError(f"{claimed}, which declares it more than once", f"pip uninstall {names[0]}")
    remedy = f"set {variable}={' or '.join(names)} to choose one, or uninstall all but one: pip uninstall {names[0]}"
    raise PluginError(f"{claimed}; {remedy}", remedy)


def _declaration(name: str, value: str) -> BackendSpec:
    """Load a plugin, and ask it, and no other, for the declaration.

    Raises:
        PluginFault: It cannot be loaded, or declares what cannot be used.
    """
    from rankwise.backends.validation import checked  # which who only imports rankwise does not need

    with loading():
        plugin = run_plugin("it cannot be loaded", lambda: load(value))
    answer = run_plugin("its rankwise_backend() failed", lambda: _asked(name, plugin))
    return run_plugin("its declaration cannot be read", lambda: checked(name, answer))


def _asked(name: str, plugin: Any) -> Any:
    import pluggy

    from rankwise.backends import hookspecs

    manager = pluggy.PluginManager("rankwise")
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, name=name)
    hooks: list[Callable[[], Any]] = [found.function for found in manager.hook.rankwise_backend.get_hookimpls()]
    if len(hooks) != 1:
        raise PluginFault("it has no @hookimpl function rankwise_backend()")
    return hooks[0]()


def _belonging(name: str, point: Point, fault: PluginFault) -> str:
    """Return what there is to say of versions, if those may be why a plugin cannot be used."""
    if "MAJOR.MINOR" in str(fault):
        return ""
    if same(KNOWN.get(name, ""), point.distribution) and series(point.version) != series(__version__):
        return f"; this process runs rankwise {__version__}, and the two must have the same MAJOR.MINOR"
    return f"; it requires {point.requires}, and this is {__version__}" if point.requires else ""


#: The registry of this process.
registry = Registry()
