"""All that a group of one host loads: ranks do so before they meet, `rankwise run --preload` before it forks them."""

from importlib import import_module

from rankwise.backends import compiled_parts

_COMPILED = ("board.native_board", "collectives.compiled")

for _name in ("plugin", "setup.creation", *(_COMPILED if compiled_parts.module() is not None else ())):
    import_module(f"rankwise_gloo_tcp.{_name}")
