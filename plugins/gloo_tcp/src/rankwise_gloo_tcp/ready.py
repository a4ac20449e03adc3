"""What `rankwise run --preload rankwise` imports before it forks ranks: all that a group of one host loads."""

from importlib import import_module

from rankwise.backends import compiled_parts

__all__: list[str] = []

_COMPILED = ("board.native_board", "collectives.compiled")

for _name in ("plugin", "setup.creation", *(_COMPILED if compiled_parts.module() is not None else ())):
    import_module(f"rankwise_gloo_tcp.{_name}")
