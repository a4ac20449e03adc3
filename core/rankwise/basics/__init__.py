"""What everything else speaks in: arrays, works, reductions, time-outs, tags, and what the flight recorder notes."""
