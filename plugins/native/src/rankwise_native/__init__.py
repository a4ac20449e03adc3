"""Compiled parts of rankwise. Nothing here is for programs: rankwise uses it where it is installed."""

import os  # pathlib takes as long to load as all of this

try:
    from rankwise_native._native import (
        API_VERSION,
        CONSTANTS,
        SOURCES,
        Calls,
        ConnectionState,
        EngineLock,
        EngineState,
        FailureState,
        FlightRecorder,
        Front,
        GuardState,
        Messages,
        PeerState,
        PipeState,
        Program,
        ProgressState,
        ReaderState,
        Relay,
        RequestState,
        Rings,
        Tls,
        Trail,
        Turn,
        Turns,
        WindowState,
        Wire,
        fence,
        forget_shared,
        note_shared,
    )
except ModuleNotFoundError as error:
    _record = os.path.join(os.path.dirname(__file__), "not_built.txt")
    if error.name != "rankwise_native._native" or not os.path.exists(_record):
        raise
    # opens: nothing, it reads why nothing was built
    with open(_record, encoding="utf-8") as _file:
        _reason = _file.read().strip()
    raise ImportError(f"it was installed without its compiled parts: {_reason}") from None

_csrc = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../csrc"))
if os.path.isdir(_csrc):  # an editable installation, whose sources may be newer than what was built of them
    import zlib
    from pathlib import Path

    _told = 0
    for _source in sorted(Path(_csrc).glob("*.[ch]")):
        _told = zlib.crc32(_source.read_bytes(), _told)
    if _told != SOURCES:
        raise ImportError(f"it was built of other sources than those in {_csrc}")

__all__ = [
    "API_VERSION",
    "CONSTANTS",
    "SOURCES",
    "Calls",
    "ConnectionState",
    "EngineLock",
    "EngineState",
    "FailureState",
    "FlightRecorder",
    "Front",
    "GuardState",
    "Messages",
    "PeerState",
    "PipeState",
    "Program",
    "ProgressState",
    "ReaderState",
    "RequestState",
    "Relay",
    "Rings",
    "Tls",
    "Trail",
    "Turn",
    "Turns",
    "WindowState",
    "Wire",
    "__version__",
    "fence",
    "forget_shared",
    "note_shared",
]

__version__ = "0.1.0"
