"""Dynamo leaves our groups alone, as it does those of C++, in which it sees no frames of Python."""

from __future__ import annotations

from types import FunctionType
from typing import Any

try:
    from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
except ImportError:  # what is private may move; then programs go on, and compiled ones with breaks
    set_code_exec_strategy = None


def left_alone(*classes: type[Any]) -> None:
    """Have dynamo compile no function of classes, of what they inherit from ours, and of what is called from there."""
    if set_code_exec_strategy is None:
        return
    strategy = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
    for kind in classes:
        for part in kind.__mro__:
            if not part.__module__.startswith("rankwise"):
                continue
            for value in vars(part).values():
                function = getattr(value, "fget", value)
                if isinstance(function, FunctionType):
                    set_code_exec_strategy(function.__code__, strategy)
