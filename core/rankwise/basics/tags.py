"""The one layout of message tags: the lower half is the user's, the upper half the core's."""

from __future__ import annotations

__all__ = ["COLLECTIVE_TAG", "FINGERPRINT_TAG", "MAX_TAG"]

#: The largest tag that users may give.
MAX_TAG = 2**30 - 1

#: The exchange of fingerprints before each derived collective.
FINGERPRINT_TAG = 2**30

#: The data of derived collectives; one tag suffices, as they run one at a time and in one order.
COLLECTIVE_TAG = 2**30 + 1
