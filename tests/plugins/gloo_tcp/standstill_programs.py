"""What ranks do in `test_standstill.py`: one stands still while it connects, until the other has given that up."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np
from wire_programs import begin

import rankwise as dist
from rankwise_gloo_tcp.engine.acceptor import Acceptor
from rankwise_gloo_tcp.transport import connecting
from rankwise_network import doors

#: After how long the handshake of an incoming connection is given up.
PATIENCE_S = 0.3


def stand_still(step: str, number: int) -> list[float]:
    """Connect, stopped at a step of it, and go on once the other waits no more; return what calls bring.

    Args:
        step: The method of `Outgoing` before which that rank is stopped.
        number: Before which call of it.
    """
    pids, done = [0, 0], threading.Event()
    rank, _ = begin()
    dist.all_gather_object(pids, os.getpid(), group=dist.new_group(backend="gloo"))
    group: Any = dist.new_group()
    if rank == 1:
        _stop_before(step, number)
    else:
        _wake_when_nobody_waits(pids[1], done)
    array = np.ones(3)
    if rank == 1:
        dist.send(array, 0, group=group)
    else:
        dist.irecv(array, 1, group=group).wait()  # type: ignore[union-attr]
    dist.all_reduce(array, group=group)
    done.set()
    dist.destroy_process_group()
    return [float(number) for number in array]


def _stop_before(step: str, number: int) -> None:
    original, calls = getattr(connecting.Outgoing, step), list[int]()

    def stopping(outgoing: Any, *args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGSTOP)
        return original(outgoing, *args, **options)

    setattr(connecting.Outgoing, step, stopping)


def _wake_when_nobody_waits(pid: int, done: threading.Event) -> None:
    doors.PATIENCE_S = PATIENCE_S
    ended = Acceptor.incoming_ended

    def wake() -> None:
        while not done.wait(0.05):  # again, as it may be stopped only now
            os.kill(pid, signal.SIGCONT)

    def waking(acceptor: Any, incoming: Any, keep: bool = False) -> None:
        ended(acceptor, incoming, keep)  # mostly given up; on a busy machine all may have come at once, and it stands
        threading.Thread(target=wake, daemon=True).start()

    Acceptor.incoming_ended = waking  # type: ignore[method-assign]
