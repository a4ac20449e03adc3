"""Compiled parts of rankwise. Nothing here is for programs: rankwise uses it where it is installed."""

from rankwise_native._native import Calls, FlightRecorder, Turns

__all__ = ["API_VERSION", "Calls", "FlightRecorder", "Turns", "__version__"]

#: The version of what rankwise expects of this package; see `rankwise.basics.native`.
API_VERSION = 1
__version__ = "0.1.0"
