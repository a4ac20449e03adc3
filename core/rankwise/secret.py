"""The job secret, for programs and engines that bring it to their processes in a way of their own.

A secret is 32 random bytes that all processes of a job know and nobody else does. `use` sets the one of this process,
as `RANKWISE_SECRET_FILE` would; a process that takes part in several jobs hands each store or group its own, as the
argument `secret`.

Examples:
    >>> mine = dist.secret.new()
    >>> print(mine)
    <job secret>
    >>> dist.secret.from_hex(mine.hex()) == mine
    True
"""

from rankwise.network.secret import Secret, from_hex, load, new, new_file, use

__all__ = ["Secret", "from_hex", "load", "new", "new_file", "use"]
