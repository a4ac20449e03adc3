"""The memory that the ranks of one host share, and the collectives that go through it."""
