"""From a name to a backend: what was registered in this process, then the entry point of exactly that name.

Nothing else is ever loaded, so a broken plugin disturbs only those who ask for it; listing goes by the metadata of the
installed distributions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rankwise.backends import discovery
from rankwise.backends.capability import Capabilities
from rankwise.backends.declaration import API_VERSION, Availability, BackendSpec
from rankwise.basics.loading import loading
from rankwise.errors import BackendNotFoundError, PluginError

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
            return sorted(set(self._in_process) | {point.name for point in discovery.installed()})

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
        return " and ".join(discovery.distribution(point) for point in discovery.entry_points_of(name))

    def _origin(self, name: str) -> str:
        points = discovery.entry_points_of(name)
        return f"by {' and '.join(discovery.distribution(point) for point in points)}" if points else ""

    def _load(self, name: str) -> BackendSpec:
        with loading():
            plugin = discovery.quickly(name)
        if plugin is not None:
            with suppress(Exception):  # whatever a plugin raises: the long way tells it
                spec: BackendSpec = _declaration(name, plugin)
                if not _flaw(name, spec, ""):
                    return spec
        return self._load_and_explain(name)

    def _load_and_explain(self, name: str) -> BackendSpec:
        points = discovery.entry_points_of(name)
        if not points:
            raise BackendNotFoundError(self._not_found(name))
        owners = [discovery.distribution(point) for point in points]
        if len(points) > 1:
            raise PluginError(f"backend {name!r} is claimed by {' and '.join(owners)}; uninstall all but one")
        try:
            spec = _declaration(name, points[0].load())
        except Exception as error:  # whatever a plugin raises is the plugin's fault, and must be told as such
            cause = f"{type(error).__name__}: {error}"
            raise PluginError(f"backend {name!r} of {owners[0]} cannot be loaded: {cause}") from error
        if flaw := _flaw(name, spec, owners[0]):
            raise PluginError(flaw)
        assert isinstance(spec, BackendSpec)
        return spec

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


def _declaration(name: str, plugin: Any) -> Any:
    """Ask a plugin, and no other, for the declaration."""
    import pluggy

    from rankwise.backends import hookspecs

    manager = pluggy.PluginManager("rankwise")
    manager.add_hookspecs(hookspecs)
    manager.register(plugin, name=name)
    answers = manager.hook.rankwise_backend()
    if len(answers) != 1:
        raise TypeError("its module has no @hookimpl function rankwise_backend()")
    return answers[0]


def _flaw(name: str, spec: Any, owner: str) -> str:
    """Return why what a distribution declares cannot be used, or an empty text."""
    version = getattr(spec, "api_version", None)
    if version != API_VERSION:
        return (
            f"backend {name!r} of {owner} is written for API version {version}, and this rankwise has {API_VERSION}; "
            "install versions of the two that belong together"
        )
    if not isinstance(spec, BackendSpec):
        return f"backend {name!r} of {owner} declares a {type(spec).__name__}, not a BackendSpec"
    if spec.name != name:
        return f"the entry point {name!r} of {owner} declares a backend called {spec.name!r}"
    return ""


#: The registry of this process.
registry = Registry()
