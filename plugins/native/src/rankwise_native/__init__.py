"""Compiled parts of rankwise. Nothing here is for programs: rankwise uses it where it is installed."""

from rankwise_native._native import API_VERSION, Calls, FlightRecorder, Messages, Rings, Turn, Turns, fence

__all__ = ["API_VERSION", "Calls", "FlightRecorder", "Messages", "Rings", "Turn", "Turns", "__version__", "fence"]

__version__ = "0.1.0"
