"""What becomes of an operation before it reaches a lane: parts packed, reductions named, messages paired."""
