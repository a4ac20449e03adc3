"""The one hook of a plugin. pluggy is for discovery only: no collective ever goes through a hook.

A plugin is a module named by an entry point in the group `rankwise.backends`, whose key is the backend's name::

    from rankwise.backends.hookspecs import hookimpl

    @hookimpl
    def rankwise_backend() -> BackendSpec:
        return BackendSpec(name="mine", api_version=1, ...)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from rankwise.backends.declaration import BackendSpec

_PROJECT = "rankwise"
_hookspec = pluggy.HookspecMarker(_PROJECT)

#: Marks the plugin's implementation of the hook.
hookimpl = pluggy.HookimplMarker(_PROJECT)


@_hookspec
def rankwise_backend() -> BackendSpec:  # type: ignore[empty-body]
    """Return the declaration of the backend, importing nothing heavy."""
