"""Who may connect: a mutual challenge-response of fixed-size records, before anything else is read.

The rank that connects sends a hello with both ranks and a random number. The other answers with a random number of its
own and a proof that it knows the group's key. The connecting rank proves the same, and gets a verdict, by which the
connection stands. One that is to be encrypted is so before that, and begins when a first verdict has come. Each proof
covers both numbers and the hello, so it fits no other connection, pair of ranks, group or direction.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from rankwise.errors import ProtocolError
from rankwise_network.secret import digest, verify

_HELLO = struct.Struct("<4sIII16s")
_MAGIC = b"RKW2"
_NONCE_NBYTES = 16
HELLO_NBYTES = _HELLO.size
PROOF_NBYTES = 32
ANSWER_NBYTES = _NONCE_NBYTES + PROOF_NBYTES

#: The verdicts: go on; or the other has connected too, and its connection is the one to use.
WELCOME, CROSSED = b"W", b"X"


class BrokenOffError(ProtocolError):
    """The connection has ended during the handshake; the other may have had no time for it."""


class Hello(NamedTuple):
    """Who connects to whom."""

    source: int
    target: int
    size: int
    nonce: bytes

    @classmethod
    def new(cls, source: int, target: int, size: int) -> Hello:
        """Make a hello with a fresh random number."""
        return cls(source, target, size, os.urandom(_NONCE_NBYTES))

    @classmethod
    def of(cls, rank: int, peer: int, size: int, connections: int) -> Hello:
        """Make the hello of one of `size` ranks for a connection to a peer, of several that a pair may have."""
        return cls.new(peer - peer % size + rank, peer, size * connections)

    def pack(self) -> bytes:
        """Return the bytes of the record."""
        return _HELLO.pack(_MAGIC, *self)


def read_hello(data: bytes, rank: int, size: int, connections: int = 1) -> Hello:
    """Return the hello in a record that came to `rank` of `size`; `connections` is how many a pair may have.

    Raises:
        ProtocolError: It is none, or not for this rank.
    """
    magic, source, target, claimed, nonce = _HELLO.unpack(data)
    if magic != _MAGIC:
        raise ProtocolError("not a rankwise connection")
    mine = source - source % size + rank  # as the rank that connects calls this one
    if target != mine or claimed != size * connections or source >= claimed or source == mine:
        raise ProtocolError(f"a hello from rank {source} of {claimed} to rank {target} came to rank {rank} of {size}")
    return Hello(source, target, claimed, nonce)


def answer(key: bytes, hello: Hello) -> bytes:
    """Return the answer to a hello: a random number, and the proof of the rank that listens."""
    nonce = os.urandom(_NONCE_NBYTES)
    return nonce + digest(key, b"listener", hello.pack(), nonce)


def check_answer(key: bytes, hello: Hello, record: bytes) -> None:
    """Raise `ProtocolError` unless an answer to `hello` proves that its sender knows the key."""
    nonce, tag = record[:_NONCE_NBYTES], record[_NONCE_NBYTES:]
    if not verify(key, tag, b"listener", hello.pack(), nonce):
        raise ProtocolError(f"rank {hello.target} does not prove that it belongs to this job (is the secret the same?)")


def proof(key: bytes, hello: Hello, answered: bytes) -> bytes:
    """Return the proof of the rank that connects."""
    return digest(key, b"dialler", hello.pack(), answered[:_NONCE_NBYTES])


def check_proof(key: bytes, hello: Hello, answered: bytes, record: bytes) -> None:
    """Raise `ProtocolError` unless the rank that connects has proved that it knows the key."""
    if not verify(key, record, b"dialler", hello.pack(), answered[:_NONCE_NBYTES]):
        raise ProtocolError(f"who claims to be rank {hello.source} does not prove that it belongs to this job")


def session_keys(key: bytes, hello: Hello, answered: bytes) -> tuple[bytes, bytes]:
    """Return the keys that guard the headers of one connection: of the rank that connects, and of the other."""
    what = hello.pack(), answered[:_NONCE_NBYTES]
    return digest(key, b"from dialler", *what), digest(key, b"from listener", *what)
