"""What becomes of an operation before it reaches a queue: parts packed, reductions named, messages paired."""
