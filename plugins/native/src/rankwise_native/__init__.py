"""Compiled parts of rankwise. Nothing here is for programs: rankwise uses it where it is installed."""

from rankwise_native._native import Calls, FlightRecorder, Messages, Rings, Turns, fence

__all__ = ["API_VERSION", "Calls", "FlightRecorder", "Messages", "Rings", "Turns", "__version__", "fence"]

#: The version of what rankwise expects of this package; see `rankwise.basics.native`.
API_VERSION = 1
__version__ = "0.1.0"
