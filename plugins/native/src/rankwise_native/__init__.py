"""Compiled parts of rankwise. Nothing here is for programs: rankwise uses it where it is installed."""

from pathlib import Path

try:
    from rankwise_native._native import (
        API_VERSION,
        CONSTANTS,
        Calls,
        ConnectionState,
        EngineState,
        FailureState,
        FlightRecorder,
        GuardState,
        Messages,
        PeerState,
        PipeState,
        ProgressState,
        ReaderState,
        Relay,
        Rings,
        Trail,
        Turn,
        Turns,
        WindowState,
        Wire,
        blake2b,
        fence,
    )
except ModuleNotFoundError as error:
    _record = Path(__file__).with_name("not_built.txt")
    if error.name != "rankwise_native._native" or not _record.exists():
        raise
    _reason = _record.read_text(encoding="utf-8").strip()
    raise ImportError(f"it was installed without its compiled parts: {_reason}") from None

__all__ = [
    "API_VERSION",
    "CONSTANTS",
    "Calls",
    "ConnectionState",
    "EngineState",
    "FailureState",
    "FlightRecorder",
    "GuardState",
    "Messages",
    "PeerState",
    "PipeState",
    "ProgressState",
    "ReaderState",
    "Relay",
    "Rings",
    "Trail",
    "Turn",
    "Turns",
    "WindowState",
    "Wire",
    "__version__",
    "blake2b",
    "fence",
]

__version__ = "0.1.0"
