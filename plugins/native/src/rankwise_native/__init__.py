"""Compiled parts of rankwise. Nothing here is for programs: rankwise uses it where it is installed."""

from pathlib import Path

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
    _record = Path(__file__).with_name("not_built.txt")
    if error.name != "rankwise_native._native" or not _record.exists():
        raise
    _reason = _record.read_text(encoding="utf-8").strip()
    raise ImportError(f"it was installed without its compiled parts: {_reason}") from None

_csrc = Path(__file__).parents[2] / "csrc"
if _csrc.is_dir():  # an editable installation, whose sources may be newer than what was built of them
    import zlib

    _told = 0
    for _source in sorted(_csrc.glob("*.[ch]")):
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
