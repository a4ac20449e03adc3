"""A job secret as the core has it: bytes that stores and groups hand on, and do not show."""

from __future__ import annotations

SECRET_NBYTES = 32


class Secret(bytes):
    """The job secret; its bytes do not show where it is printed."""

    def __repr__(self) -> str:
        return "<job secret>"

    __str__ = __repr__


def given_secret(secret: bytes, who: str) -> Secret:
    """Return a secret that was given as an argument.

    Raises:
        ValueError: It is none; `who` was to use it.
    """
    if len(secret) != SECRET_NBYTES:
        raise ValueError(f"{who}: a job secret has {SECRET_NBYTES} bytes, not {len(secret)}")
    return Secret(secret)
