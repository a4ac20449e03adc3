"""Ranks that stop for a moment at any call or return within rankwise, so that orders which are rare become common."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from types import FrameType

#: How likely a rank stops at each call and return; nothing if it is not set.
VARIABLE = "SOAK_PAUSES"

#: For how long: often just to let another thread or process go on, seldom for longer than anybody looks.
_PAUSES_S = (0.0, 0.0, 50e-6, 50e-6, 1e-3, 1e-3, 5e-3, 20e-3)


def begin() -> None:
    """Stop now and then from now on, in this thread and those that it starts, if that is wanted."""
    likely = float(os.environ.get(VARIABLE, "0"))
    if not likely or sys.getprofile() is not None:
        return
    draw, sleep = random.Random(os.urandom(8)), time.sleep

    def pause(frame: FrameType, event: str, argument: object) -> None:
        if draw.random() < likely and str(frame.f_globals.get("__name__")).startswith("rankwise"):
            sleep(draw.choice(_PAUSES_S))

    threading.setprofile(pause)
    sys.setprofile(pause)
