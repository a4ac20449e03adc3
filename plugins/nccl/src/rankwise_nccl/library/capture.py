"""Threads of ours and graphs that the program captures meanwhile."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

#: CU_STREAM_CAPTURE_MODE_RELAXED.
_RELAXED = 2


def relax() -> None:
    """Let this thread ask devices while another captures a graph, which a question would otherwise make invalid.

    CuPy has no function for it, and captures in that mode unless it is told otherwise.
    """
    driver = _driver()
    if driver is not None:
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_RELAXED)))


@cache
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
