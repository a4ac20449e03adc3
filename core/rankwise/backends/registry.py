"""From a name to a backend: what was registered in this process, then the entry point of exactly that name.

Nothing else is ever loaded, so a broken plugin disturbs only those who ask for it; listing goes by the metadata of the
installed distributions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rankwise.backends.capability import Capabilities
from rankwise.backends.contract import API_VERSION, Availability, BackendSpec
from rankwise.errors import BackendNotFoundError, PluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["KNOWN", "Registry", "registry"]

#: Backends that this project ships beside the core, and the distribution that brings each.
KNOWN = {"gloo": "rankwise-gloo-tcp", "mpi": "rankwise-mpi", "nccl": "rankwise-nccl"}


class Registry:
    """All backends that this process can name."""

    def __init__(self) -> None:
        self._in_process: dict[str, BackendSpec] = {}
        self._loaded: dict[str, BackendSpec] = {}
        self._lock = threading.RLock()

    def register(self, spec: BackendSpec, replace: bool = False) -> None:
        """Register a backend in this process.

        Raises:
            ValueError: The name is taken, by this process or an installed plugin, and `replace` is false.
        """
        with self._lock:
            taken = "in this process" if spec.name in self._in_process else self._origin(spec.name)
            if taken and not replace:
                raise ValueError(f"backend {spec.name!r} is already registered {taken}; replace=True replaces it")
            self._in_process[spec.name] = spec

    def unregister(self, name: str) -> None:
        """Forget a backend that was registered in this process."""
        with self._lock:
            del self._in_process[name]

    def names(self) -> list[str]:
        """Return the names of all installed and registered backends, without loading any."""
        with self._lock:
            return sorted(set(self._in_process) | {point.name for point in _installed()})

    def get(self, name: str) -> BackendSpec:
        """Return the backend called `name`, loading its plugin if need be.

        Raises:
            BackendNotFoundError: There is none.
            PluginError: Its plugin is broken, clashes with another, or is written for another API version.
        """
        name = str(name)  # a `Backend` is spelled otherwise in messages
        with self._lock:
            spec = self._in_process.get(name) or self._loaded.get(name)
            if spec is None:
                spec = self._loaded[name] = self._load(name)
            return spec

    def installed(self) -> Iterator[BackendSpec]:
        """Yield every backend that loads; the broken ones are told by `problem`."""
        for name in self.names():
            if self.problem(name) is None:
                yield self.get(name)

    def tables(self) -> Iterator[Capabilities]:
        """Yield the capability table of every backend that loads."""
        return (spec.capabilities for spec in self.installed())

    def problem(self, name: str) -> PluginError | BackendNotFoundError | None:
        """Return why `name` cannot be loaded, or None if it can."""
        try:
            self.get(name)
        except (PluginError, BackendNotFoundError) as error:
            return error
        return None

    def availability(self, name: str) -> Availability:
        """Tell whether `name` can run here, and if not why; never raises."""
        name = str(name)
        problem = self.problem(name)
        if problem is not None:
            return Availability(False, str(problem), _remedy(name))
        try:
            return self.get(name).availability()
        except Exception as error:  # a probe of a foreign library may fail in any way
            return Availability(False, f"its availability check failed: {type(error).__name__}: {error}")

    def provider(self, name: str) -> str:
        """Return the distribution and version that brings `name`, or "this process"."""
        if name in self._in_process:
            return "this process"
        return " and ".join(_distribution(point) for point in _entry_points(name))

    def _origin(self, name: str) -> str:
        points = _entry_points(name)
        return f"by {' and '.join(_distribution(point) for point in points)}" if points else ""

    def _load(self, name: str) -> BackendSpec:
        points = _entry_points(name)
        if not points:
            raise BackendNotFoundError(self._not_found(name))
        if len(points) > 1:
            claims = " and ".join(_distribution(point) for point in points)
            raise PluginError(f"backend {name!r} is claimed by {claims}; uninstall all but one")
        try:
            spec = _declaration(points[0])
        except Exception as error:  # whatever a plugin raises is the plugin's fault, and must be told as such
            cause = f"{type(error).__name__}: {error}"
            raise PluginError(f"backend {name!r} of {_distribution(points[0])} cannot be loaded: {cause}") from error
        return _checked(name, spec, points[0])

    def _not_found(self, name: str) -> str:
        names = self.names()
        import difflib  # only now: few programs misspell a backend

        near = difflib.get_close_matches(name, [*names, *KNOWN], n=1)
        parts = [f"no backend {str(name)!r} is installed (installed: {', '.join(names) or 'none'})"]
        if name not in KNOWN and near:
            parts.append(f"did you mean {near[0]!r}?")
        return "; ".join(parts + ([_remedy(name)] if _remedy(name) else []))


def _remedy(name: str) -> str:
    return f"pip install {KNOWN[name]}" if name in KNOWN else ""


def _installed() -> Iterable[EntryPoint]:
    # Read afresh each time: a plugin may be installed while the process runs, and only slow paths come here.
    from importlib.metadata import entry_points

    from rankwise.backends.hookspecs import ENTRY_POINT_GROUP

    return entry_points(group=ENTRY_POINT_GROUP)


def _entry_points(name: str) -> list[EntryPoint]:
    """Return the installed entry points of a name; a distribution that is found twice on the path counts once."""
    points = [point for point in _installed() if point.name == name]
    if len(points) < 2:
        return points  # what it costs to read whose it is shows where many ranks start
    found: dict[str, EntryPoint] = {}
    for point in points:
        found.setdefault(_distribution(point), point)
    return list(found.values())


def _distribution(point: EntryPoint) -> str:
    # `dist` is None only for entry points that were made by hand.
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value


def _declaration(point: EntryPoint) -> Any:
    """Load an entry point, and no other, and ask its plugin for the declaration."""
    import pluggy

    from rankwise.backends import hookspecs

    manager = pluggy.PluginManager("rankwise")
    manager.add_hookspecs(hookspecs)
    manager.register(point.load(), name=point.name)
    answers = manager.hook.rankwise_backend()
    if len(answers) != 1:
        raise TypeError("its module has no @hookimpl function rankwise_backend()")
    return answers[0]


def _checked(name: str, spec: Any, point: EntryPoint) -> BackendSpec:
    version = getattr(spec, "api_version", None)
    if version != API_VERSION:
        raise PluginError(
            f"backend {name!r} of {_distribution(point)} is written for API version {version}, and this rankwise has "
            f"{API_VERSION}; install versions of the two that belong together"
        )
    if not isinstance(spec, BackendSpec):
        found = type(spec).__name__
        raise PluginError(f"backend {name!r} of {_distribution(point)} declares a {found}, not a BackendSpec")
    if spec.name != name:
        raise PluginError(f"the entry point {name!r} of {_distribution(point)} declares a backend called {spec.name!r}")
    return spec


#: The registry of this process.
registry = Registry()
