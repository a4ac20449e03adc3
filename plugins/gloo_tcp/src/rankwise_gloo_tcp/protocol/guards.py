"""What guards the frames of a connection between hosts: a tag on each header, a seal on each payload if wanted."""

from __future__ import annotations

from typing import NamedTuple

from rankwise.backends import blake2b
from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.protocol import libsodium
from rankwise_gloo_tcp.protocol.frames import TAG_NBYTES
from rankwise_gloo_tcp.state import GuardState
from rankwise_network.secret import same

SEAL_NBYTES = 16
CHANGED = "a frame's header was changed on its way"


class Guards(NamedTuple):
    """The keys that guard the headers, and payloads if wanted: of the frames that go out, and of those that come in."""

    mine: bytes
    theirs: bytes
    payloads: bool = False


class Guard(GuardState):
    """One direction of a connection: each frame has a number, so that none can be left out, repeated or moved."""

    def __init__(self, key: bytes) -> None:
        self.key, self.number, self.hash_address = key, 0, libsodium.hash_address()
        # To copy it costs less than to take in the key again. BLAKE2 works on what it was given only when more comes,
        # which is why a byte is behind the key: else each tag would work on the key.
        self._keyed = blake2b(b"\0", key=key, digest_size=TAG_NBYTES)

    def tag(self, head: bytes) -> bytes:
        """Return the tag of the next header."""
        number, self.number = self.number, self.number + 1
        made = self._keyed.copy()
        made.update(number.to_bytes(8, "little") + head)
        return made.digest()

    def check(self, head: bytes, tag: memoryview) -> None:
        """Raise `ProtocolError` unless this is the tag of the next header."""
        if not same(self.tag(head), tag):
            raise ProtocolError(CHANGED)

    def seal(self) -> blake2b:
        """Return what takes in the payload of the latest frame."""
        return blake2b(self.number.to_bytes(8, "little"), key=self.key, digest_size=SEAL_NBYTES)
