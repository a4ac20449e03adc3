"""What everything else speaks in: arrays, works, reductions, time-outs, tags, and what the flight recorder notes."""

from rankwise.basics.systems import require_ours

require_ours()  # here, as this is loaded before anything that needs NumPy
