"""What a process does that has loaded nothing else yet; by reference, see `by_reference.py`."""

from __future__ import annotations

import builtins
import dataclasses
import importlib
import io
import os
import signal
import sys
import time
from contextlib import redirect_stdout

Job = dataclasses.make_dataclass("Job", ["step"], namespace={"__module__": __name__})


def loaded(*modules: str) -> set[str]:
    """Return all that some modules load."""
    for name in modules:
        importlib.import_module(name)
    return set(sys.modules)


def declared(package: str, times: int) -> tuple[float, set[str]]:
    """Return how long a declaration takes at least that is loaded some times anew, and what is loaded then."""
    loaded("numpy", "rankwise.backends.communicator", "rankwise.backends.hookspecs")
    took_s = []
    for _ in range(times):
        for name in [name for name in sys.modules if name.startswith(package)]:
            del sys.modules[name]
        began = time.process_time()
        importlib.import_module(f"{package}.plugin").rankwise_backend()
        took_s.append(time.process_time() - began)
    return min(took_s), set(sys.modules)


def available(backend: str) -> tuple[bool, str, str]:
    """Return whether a backend can run here, why not, and what helps."""
    import rankwise as dist

    return dist.availability(backend)


def read_secret() -> bytes:
    """Return the job secret, which is read once."""
    from rankwise_network import secret

    value = secret.load()
    assert value is secret.load()
    return bytes(value)


def verify_digest() -> set[str]:
    """Make and verify a digest, and return all that is loaded then."""
    from rankwise_network import secret

    key = secret.derive(bytes(32), "a")
    assert secret.verify(key, secret.digest(key, b"b"), b"b")
    return set(sys.modules)


def show_help() -> tuple[object, str, set[str]]:
    """Return how the command ends that shows its overview, the overview, and all that is loaded then."""
    from rankwise.cli import main

    with redirect_stdout(io.StringIO()) as shown:
        try:
            code: object = main(["--help"])
        except SystemExit as end:
            code = end.code
    return code, shown.getvalue(), set(sys.modules)


def compiled_parts() -> str:
    """Return whether the compiled parts are used, why not, and where they are."""
    from rankwise.basics import native

    return f"{native.state()} {native.module()}"


def send_job() -> bytes:
    from rankwise.codec import encode

    return encode(Job(5))


def receive_job(data: bytes, registered: bool) -> str:
    """Return what arrives, or why it does not."""
    from rankwise.codec import DecodeError, decode, register_dataclass

    if registered:
        register_dataclass(Job)
    try:
        return str(decode(data))
    except DecodeError as error:
        return str(error)


def spin(core: int | None = None, policy: int = 0) -> None:
    """Say that it has begun, and run without end, perhaps on one core and under some policy of the scheduler."""
    if core is not None:
        os.sched_setaffinity(0, [core])
        os.sched_setscheduler(0, policy, os.sched_param(0))
    print(flush=True)
    while True:
        pass


def rest() -> None:
    """Say that it has begun, and wait for its input."""
    print(flush=True)
    sys.stdin.read()


def be_signalled(kind: str, of_a_feature: bool, times: int) -> None:
    """Ask for a backend that has signals come, of which the second finds the first one's handler at work."""
    import rankwise as dist
    from rankwise.backends.registry import registry

    interrupted = type("Interrupted", (getattr(builtins, kind),), {})
    coming = [signal.SIGUSR1] * times

    def came(number: int, frame: object) -> None:
        raise interrupted("by a handler")

    def signals() -> None:
        while coming:
            signal.raise_signal(coming.pop())

    def ask() -> bool:
        if of_a_feature:  # its condition is asked for with it
            return dist.supports("send", "cpu", backend="signalled")
        return bool(registry.availability("signalled"))

    signal.signal(signal.SIGUSR1, came)
    sys.signals = signals  # type: ignore[attr-defined]
    for _ in range(2):
        try:
            print(ask(), bool(dist.is_backend_available("signalled")))
        except interrupted as error:
            print("interrupted", error)
