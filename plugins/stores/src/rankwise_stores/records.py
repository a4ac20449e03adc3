"""What stands in the file of a `FileStore`: a header and records, each with a tag that no accident gets past.

Where the job has a secret, the tags are keyed by it, so that nobody else can write what a member reads. A tag covers
the place of its record as well, so that a record that was moved, or kept from earlier, is none either.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rankwise.errors import DistStoreError
from rankwise.stores import blake2b
from rankwise_network.secret import derive, same

MAGIC = b"rankwise store 2"

_TAG_NBYTES = 16
#: magic, who may use it, mark, generation, begin, end; the tag follows.
_FIELDS = struct.Struct("<16s16s16sQQQ")
HEADER_NBYTES = _FIELDS.size + _TAG_NBYTES
#: Length of the key, length of the value or -1 for a deletion.
_LENGTHS = struct.Struct("<Ii")
_PLACE = struct.Struct("<QQ")


class Header(NamedTuple):
    """What the header says.

    Attributes:
        mark: Tells this life of the file from any other.
        generation: Counts how often the records have been moved.
        begin: Where the valid records begin.
        end: Where they end.
    """

    mark: bytes
    generation: int
    begin: int
    end: int

    @classmethod
    def of_new_file(cls) -> Header:
        """Return the header of a file without records."""
        return cls(os.urandom(16), 0, HEADER_NBYTES, HEADER_NBYTES)


class Seal:
    """Writes and checks the tags of one file.

    Args:
        path: The file, for messages.
        secret: The job secret, if there is one.
        job: What tells the job from others where there is no secret, "" if nothing does.
    """

    def __init__(self, path: str, secret: bytes | None, job: str) -> None:
        self._path = path
        self._key = b"" if secret is None else derive(secret, "file store")
        self._guarded = secret is not None
        #: Says which job the file belongs to, and tells nothing of its secret.
        self._owner = self._tag(b"owner", b"" if self._guarded else job.encode(errors="surrogateescape"))

    def pack_header(self, header: Header) -> bytes:
        """Return the bytes of a header."""
        fields = _FIELDS.pack(MAGIC, self._owner, *header)
        return fields + self._tag(b"header", fields)

    def unpack_header(self, data: bytes) -> Header:
        """Return the header of which these are the bytes.

        Raises:
            DistStoreError: They are none, or those of another job.
        """
        magic, owner, *values = _FIELDS.unpack_from(data)
        if not self._matches(data[_FIELDS.size :], b"header", data[: _FIELDS.size]):
            if magic == MAGIC and owner != self._owner:
                raise self._of_another_job()
            raise self._damaged("its header is not as a store has written it")
        if owner != self._owner:
            raise self._of_another_job()
        return Header(*values)

    def pack(self, changes: Mapping[str, bytes | None], header: Header, offset: int) -> bytes:
        """Return the records of some changes, None for a deletion, as they stand at `offset`."""
        parts: list[bytes] = []
        for key, value in changes.items():
            name = key.encode()
            body = _LENGTHS.pack(len(name), -1 if value is None else len(value)) + name + (value or b"")
            parts += (body, self._tag(b"record", header.mark, _PLACE.pack(header.generation, offset), body))
            offset += len(body) + _TAG_NBYTES
        return b"".join(parts)

    def unpack(self, data: bytes, header: Header, offset: int) -> Iterator[tuple[str, bytes | None]]:
        """Yield the changes that records stand for which begin at `offset`.

        Raises:
            DistStoreError: Something else than a store has changed them.
        """
        position = 0
        while position < len(data):
            body, key_nbytes = self._body(data, position)
            begin, end = position + len(body), position + len(body) + _TAG_NBYTES
            place = _PLACE.pack(header.generation, offset + position)
            if not self._matches(data[begin:end], b"record", header.mark, place, body):
                raise self._damaged(f"the record at byte {offset + position} is not as a store has written it")
            key = body[_LENGTHS.size : _LENGTHS.size + key_nbytes].decode(errors="surrogateescape")
            deleted = _LENGTHS.unpack_from(body)[1] < 0
            yield key, None if deleted else body[_LENGTHS.size + key_nbytes :]
            position = end

    def _body(self, data: bytes, position: int) -> tuple[bytes, int]:
        """Return a record without its tag, and the length of its key, if there is room for what it claims to be."""
        room = len(data) - position - _TAG_NBYTES
        if room >= _LENGTHS.size:
            key_nbytes, value_nbytes = _LENGTHS.unpack_from(data, position)
            nbytes = _LENGTHS.size + key_nbytes + max(0, value_nbytes)
            if nbytes <= room:
                return data[position : position + nbytes], key_nbytes
        raise self._damaged("a record claims to be longer than the file")

    def _matches(self, tag: bytes, *parts: bytes) -> bool:
        return same(tag, self._tag(*parts))

    def _tag(self, *parts: bytes) -> bytes:
        # Where one part ends and the next begins is known: all but the last have fixed lengths for each purpose.
        return blake2b(b"".join(parts), digest_size=_TAG_NBYTES, key=self._key).digest()

    def _damaged(self, how: str) -> DistStoreError:
        return DistStoreError(
            f"FileStore: somebody else has written to {self._path}, or its disk has changed it: {how}; begin the job "
            "anew with another file"
        )

    def _of_another_job(self) -> DistStoreError:
        mine = "another job secret than this process" if self._guarded else "a job secret, or another launcher's job"
        return DistStoreError(
            f"FileStore: {self._path} is in use by another job: by processes that have {mine}; give each job a file of "
            "its own, and all processes of one job the same RANKWISE_SECRET_FILE"
        )
