"""What `rankwise run --preload rankwise` imports before it forks ranks: all that a group of one host loads."""

from importlib import import_module

from rankwise.backends import compiled_parts

__all__: list[str] = []

_COMPILED = ("rankwise_native.board", "rankwise_native.shortest")

for _name in ("plugin", "setup.creation"):
    import_module(f"rankwise_gloo_tcp.{_name}")
for _name in _COMPILED if compiled_parts.module() is not None else ():
    import_module(_name)
