"""`rankwise explain`: which algorithm runs, and how long it and its rivals take on a simulated network."""
