"""What groups of torch 2.14 and later can do, and ours cannot: they say so, and refuse it in words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NoReturn


class Lacking:
    """Windows, and functions that torch's C++ would call around each operation."""

    #: What torch asks before it uses them.
    supports_window = False
    supports_abort_hooks = False
    supports_completion_hooks = False

    def _refuse(self, *args: Any, **more: Any) -> NoReturn:
        """Raise, as this group has nothing of the kind."""
        raise RuntimeError("groups of rankwise have no windows and no hooks")

    new_window = _refuse
    register_abort_hook = unregister_abort_hook = _refuse
    register_pre_hook = unregister_pre_hook = _refuse
    register_post_hook = unregister_post_hook = _refuse

    def _add_ephemeral_timeout(self, timeout: timedelta) -> None:
        """Do nothing, as torch's own gloo."""

    def eager_connect_single_device(self, device: Any) -> None:
        """Do nothing: a group is connected when it is made."""
