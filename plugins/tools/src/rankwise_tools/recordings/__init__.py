"""What flight recorders have written down: reading it, putting the ranks' clocks together, and saying who was late."""
