"""The one hook of a plugin. pluggy is for discovery only: no collective ever goes through a hook.

A plugin is a module named by an entry point in the group `rankwise.backends`, whose key is the backend's name::

    from rankwise.backends.hookspecs import hookimpl

    @hookimpl
    def rankwise_backend() -> BackendSpec:
        return BackendSpec(name="mine", api_version=1, ...)

Such a plain function is called as it is. pluggy, which takes some milliseconds to load, is asked about anything else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rankwise.backends.declaration import BackendSpec

__all__ = ["hookimpl", "implementations", "rankwise_backend"]

_PROJECT = "rankwise"
#: Where pluggy looks for the options of an implementation.
_MARK = f"{_PROJECT}_impl"

_F = TypeVar("_F", bound=Callable[..., Any])


def hookimpl(function: _F) -> _F:
    """Mark the plugin's implementation of the hook, as pluggy's own marker does."""
    setattr(function, _MARK, {})
    return function


def rankwise_backend() -> BackendSpec:  # type: ignore[empty-body]
    """Return the declaration of the backend, importing nothing heavy."""


def implementations(name: str, plugin: Any) -> list[Callable[[], Any]]:
    """Return the functions by which a plugin implements the hook: one, if nothing is wrong with it.

    Args:
        name: The backend's name.
        plugin: What its entry point stands for.
    """
    found = vars(plugin).get(rankwise_backend.__name__) if type(plugin) is ModuleType else None
    if type(found) is FunctionType and getattr(found, _MARK, None) == {} and found.__code__.co_argcount == 0:
        return [found]
    return _told_by_pluggy(name, plugin)


def _told_by_pluggy(name: str, plugin: Any) -> list[Callable[[], Any]]:
    import pluggy

    manager = pluggy.PluginManager(_PROJECT)
    pluggy.HookspecMarker(_PROJECT)(rankwise_backend)
    manager.add_hookspecs(sys.modules[__name__])
    manager.register(plugin, name=name)
    return [found.function for found in manager.hook.rankwise_backend.get_hookimpls()]
