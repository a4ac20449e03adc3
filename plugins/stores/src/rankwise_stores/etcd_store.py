"""`EtcdStore`: a store in an etcd."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from rankwise.errors import DistStoreError
from rankwise.stores import DEFAULT_TIMEOUT_S, Timeout, shortened
from rankwise_stores import lives
from rankwise_stores.etcd_gateway import Gateway, Watch, decoded, encoded
from rankwise_stores.kept import ServerStore
from rankwise_stores.line import Census, Ear, Life, Line, LostError, Seat, Server
from rankwise_stores.server_urls import EtcdPlace, etcd_place

#: A transaction of etcd has at most 128 parts.
_PARTS = 100
#: What a line's number was taken by, the last time.
_SWAP, _SETTLE = b"swap", b"settle"


class EtcdStore(ServerStore):
    """A store whose keys lie in an etcd, which no rank and no launcher has to outlive.

    It begins empty with its first user, and the last one to close it removes all keys. It speaks to the JSON gateway,
    version 3, and needs no other package. An etcd that is not told otherwise (`--max-request-bytes`) takes values of at
    most 1.5 MiB, and requests that have an old value to compare and a new one count both.

    Args:
        url: `etcd://[user:password@]host:port,host2:port2/prefix`, or `etcds://` with TLS.
        world_size: How many ranks use it, if `rank` is given.
        timeout: How long to wait for the server, and, from then on, for keys: a `timedelta` or seconds.
        rank: This process's rank, if it is one: then all that meet here have another one, and the same `world_size`.
        secret: The job secret, if it is not the one of the environment; groups that meet in the store have it too.

    Raises:
        ValueError: The URL makes no sense.
        DistNetworkError: No member can be reached.
        DistStoreError: etcd refuses this user, or another job uses the prefix.
    """

    def __init__(
        self,
        url: str,
        world_size: int = -1,
        timeout: Timeout = DEFAULT_TIMEOUT_S,
        *,
        rank: int = -1,
        secret: bytes | None = None,
    ) -> None:
        with shortened:
            super().__init__(_Etcd(etcd_place(url)), rank, world_size, timeout, secret)


class _Etcd(Server):
    """An etcd, and a prefix there."""

    def __init__(self, place: EtcdPlace) -> None:
        self.place, self.prefix = place, place.prefix
        self.name, self.host = place.shown, place.members[0][0]

    def line(self) -> Line:
        return _EtcdLine(self)

    def ear(self) -> Ear:
        return _EtcdEar(self)

    @property
    def life_key(self) -> bytes:
        """Where it stands which life there is."""
        return f"{self.prefix}/life".encode()

    def keys(self, mark: str) -> _Keys:
        """Return where the parts of a life lie."""
        return _Keys(f"{self.prefix}/{mark}/".encode())


class _Keys(NamedTuple):
    """Where the parts of a life lie: all under one key."""

    all: bytes

    @property
    def mark(self) -> bytes:
        """What is there as long as the life."""
        return self.all + b"mark"

    @property
    def values(self) -> bytes:
        """What users have stored."""
        return self.all + b"values/"

    @property
    def seats(self) -> bytes:
        """Which seats are taken, and by whom."""
        return self.all + b"seats/"

    @property
    def present(self) -> bytes:
        """The beats of the present users; a lease of each takes them away."""
        return self.all + b"present/"

    def number(self, line: str) -> bytes:
        """Return where a line's number stands: its version is the number."""
        return self.all + b"numbers/" + line.encode()

    def value(self, key: str) -> bytes:
        """Return where the value of a key stands."""
        return self.values + key.encode()


class _EtcdLine(Line):
    """A connection to a member of etcd."""

    def __init__(self, server: _Etcd) -> None:
        super().__init__()
        self._server, self._gateway = server, Gateway(server.place)
        #: The lease of this user's presence.
        self._lease = ""

    def read(self, mark: str, keys: Sequence[str], within_s: float) -> list[bytes | None]:
        at = self._server.keys(mark)
        found: list[bytes | None] = []
        for begin in range(0, len(keys), _PARTS):
            parts = [_range(at.mark, keys_only=True), *(_range(at.value(key)) for key in keys[begin : begin + _PARTS])]
            mark_there, *there = self._transact([], parts, [], within_s)[1]
            if not _kvs(mark_there):
                self._is_gone()
            found += [_value(each) for each in there]
        return found

    def names(self, mark: str, within_s: float) -> list[str]:
        at = self._server.keys(mark)
        parts = [_range(at.mark, keys_only=True), _range(at.values, _end(at.values), keys_only=True)]
        mark_there, there = self._transact([], parts, [], within_s)[1]
        if not _kvs(mark_there):
            self._is_gone()
        return [decoded(each["key"])[len(at.values) :].decode() for each in _kvs(there)]

    def swap(
        self, life: Life, key: str, expected: bytes | None, desired: bytes | None, within_s: float
    ) -> bytes | None:
        at, place = self._server.keys(life.mark), self._server.keys(life.mark).value(key)
        number = at.number(self.name)
        conditions = [_is_there(at.mark), _version(number, self.number)]
        conditions.append(_version(place, 0) if expected is None else _is(place, expected))
        change = _delete(place) if desired is None else _put(place, desired, life.lease)
        looks = [_range(at.mark, keys_only=True), _range(number), _range(place)]
        done, said = self._transact(conditions, [change, _put(number, _SWAP, life.lease)], looks, within_s)
        if done:
            self.number += 1
            return expected
        if not _kvs(said[0]):
            self._is_gone()
        if _version_of(said[1]) != self.number:
            raise LostError("the server knows another number of this line")
        return _value(said[2])

    def settle(self, life: Life, within_s: float) -> bool:
        at = self._server.keys(life.mark)
        number = at.number(self.name)
        looks = [_range(at.mark, keys_only=True), _range(number)]
        conditions = [_is_there(at.mark), _version(number, self.number)]
        done, said = self._transact(conditions, [_put(number, _SETTLE, life.lease)], looks, within_s)
        if done:
            self.number += 1
            return False
        if not _kvs(said[0]):
            self._is_gone()
        had = _version_of(said[1]) == self.number + 1 and _value(said[1]) == _SWAP
        self.number = _version_of(said[1])
        return had

    def _is_gone(self) -> None:
        raise DistStoreError(
            f"{self._server.name}: what this job has stored is gone: another job has begun under the same prefix, or "
            "somebody has removed it"
        )

    # ------------------------------------------------------------------ lives

    def census(self, within_s: float) -> Census:
        (said,) = self._transact([], [_range(self._server.life_key)], [], within_s)[1]
        text = _value(said)
        if text is None:
            return Census(None, {})
        life = _life(text)
        at = self._server.keys(life.mark)
        parts = [_range(each, _end(each)) for each in (at.seats, at.present)]
        taken, present = (_by_name(each) for each in self._transact([], parts, [], within_s)[1])
        return Census(life, {name: Seat(present.get(name, who), name in present) for name, who in taken.items()})

    def found(self, before: Life | None, life: Life, seat: str, beat: str, within_s: float) -> Life | None:
        there = self.census(within_s).life
        if there is not None and there.mark == life.mark:  # a request whose answer was lost
            return there
        life = life._replace(lease=self._grant(lives.KEPT_S, within_s))
        place, at = self._server.life_key, self._server.keys(life.mark)
        changes = [_put(place, _text(life), life.lease), _put(at.mark, b"", life.lease)]
        conditions = [_version(place, 0)]
        if before is not None:
            old = self._server.keys(before.mark)
            conditions = [_is(place, _text(before)), _none(old.present)]
            changes.append(_delete(old.all, _end(old.all)))
        changes += self._told(life, seat, beat, within_s)
        if self._transact(conditions, changes, [], within_s)[0]:
            return life
        self._revoke(life.lease, within_s)  # another user was faster
        return None

    def sit(self, life: Life, seat: str, beat: str, within_s: float) -> bool:
        at = self._server.keys(life.mark)
        place = at.seats + seat.encode()
        conditions = [_is(self._server.life_key, _text(life)), _version(place, 0)]
        done, said = self._transact(conditions, self._told(life, seat, beat, within_s), [_range(place)], within_s)
        return done or (_value(said[0]) or b"").split()[:1] == beat.encode().split()[:1]

    def beat(self, life: Life, seat: str, beat: str, within_s: float) -> bool:
        at = self._server.keys(life.mark)
        self._keep_alive(life.lease, within_s)
        if not self._keep_alive(self._lease, within_s):
            self._lease = ""  # this process stood still for too long
        present = self._told(life, seat, beat, within_s)[1]
        return self._transact([_is_there(at.mark)], [present], [], within_s)[0]

    def leave(self, life: Life, seat: str, is_rank: bool, within_s: float) -> None:
        at, place = self._server.keys(life.mark), self._server.life_key
        gone = [_delete(at.present + seat.encode())] + ([] if is_rank else [_delete(at.seats + seat.encode())])
        self._transact([], gone, [], within_s)
        conditions = [_none(at.present), _is(place, _text(life))]
        if self._transact(conditions, [_delete(at.all, _end(at.all)), _delete(place)], [], within_s)[0]:
            self._revoke(life.lease, within_s)
        if self._lease:
            self._revoke(self._lease, within_s)

    def _told(self, life: Life, seat: str, beat: str, within_s: float) -> list[dict[str, Any]]:
        """Return the changes by which a user takes its seat, and is present."""
        at = self._server.keys(life.mark)
        self._lease = self._lease or self._grant(lives.PRESENT_S, within_s)
        return [
            _put(at.seats + seat.encode(), beat.encode(), life.lease),
            _put(at.present + seat.encode(), beat.encode(), self._lease),
        ]

    def _grant(self, kept_s: float, within_s: float) -> str:
        return str(self._gateway.ask("/v3/lease/grant", {"TTL": int(kept_s)}, within_s)["ID"])

    def _revoke(self, lease: str, within_s: float) -> None:
        with contextlib.suppress(DistStoreError):  # it has ended meanwhile
            self._gateway.ask("/v3/lease/revoke", {"ID": lease}, within_s)

    def _keep_alive(self, lease: str, within_s: float) -> bool:
        said = self._gateway.ask("/v3/lease/keepalive", {"ID": lease}, within_s) if lease else {}
        return int(said.get("result", {}).get("TTL", 0)) > 0

    # ------------------------------------------------------------------ requests

    def disconnect(self) -> None:
        self._gateway.disconnect()

    def _transact(
        self,
        conditions: list[dict[str, Any]],
        changes: list[dict[str, Any]],
        otherwise: list[dict[str, Any]],
        within_s: float,
    ) -> tuple[bool, list[dict[str, Any]]]:
        """Have etcd carry out some requests if the conditions hold, else others, in one step.

        Returns:
            Whether they held, and the answers to the requests.
        """
        body = {"compare": conditions, "success": changes, "failure": otherwise}
        said = self._gateway.ask("/v3/kv/txn", body, within_s)
        answers: list[dict[str, Any]] = [next(iter(each.values()), {}) for each in said.get("responses", [])]
        return bool(said.get("succeeded", False)), answers


class _EtcdEar(Ear):
    """A watch of one key."""

    def __init__(self, server: _Etcd) -> None:
        self._server, self._gateway = server, Gateway(server.place)
        self._watch: Watch | None = None

    def listen(self, mark: str, key: str, within_s: float) -> None:
        self.disconnect()
        self._watch = self._gateway.watch(self._server.keys(mark).value(key), within_s)
        self.key = key

    def wait(self, within_s: float) -> bool:
        if self._watch is None:
            raise LostError("nothing is watched")
        return self._watch.wait(within_s)

    def disconnect(self) -> None:
        self.key, watch, self._watch = None, self._watch, None
        if watch is not None:
            watch.close()


# ---------------------------------------------------------------------- parts of requests, and of answers


def _range(key: bytes, end: bytes = b"", keys_only: bool = False) -> dict[str, Any]:
    return {"request_range": {"key": encoded(key), "range_end": encoded(end), "keys_only": keys_only}}


def _put(key: bytes, value: bytes, lease: str) -> dict[str, Any]:
    return {"request_put": {"key": encoded(key), "value": encoded(value), "lease": lease}}


def _delete(key: bytes, end: bytes = b"") -> dict[str, Any]:
    return {"request_delete_range": {"key": encoded(key), "range_end": encoded(end)}}


def _version(key: bytes, version: int) -> dict[str, Any]:
    return {"key": encoded(key), "target": "VERSION", "result": "EQUAL", "version": version}


def _is_there(key: bytes) -> dict[str, Any]:
    return {"key": encoded(key), "target": "VERSION", "result": "GREATER", "version": 0}


def _none(prefix: bytes) -> dict[str, Any]:
    """Return the condition that there is no key with a beginning."""
    return {**_version(prefix, 0), "range_end": encoded(_end(prefix))}


def _is(key: bytes, value: bytes) -> dict[str, Any]:
    return {"key": encoded(key), "target": "VALUE", "result": "EQUAL", "value": encoded(value)}


def _end(prefix: bytes) -> bytes:
    """Return what comes behind all keys with a beginning, which ends with a slash."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _kvs(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return answer.get("kvs", [])  # type: ignore[no-any-return]


def _value(answer: dict[str, Any]) -> bytes | None:
    """Return the value of the only key that was asked for; None if it is not there."""
    found = _kvs(answer)
    return decoded(found[0].get("value", "")) if found else None


def _version_of(answer: dict[str, Any]) -> int:
    found = _kvs(answer)
    return int(found[0]["version"]) if found else 0


def _by_name(answer: dict[str, Any]) -> dict[str, str]:
    """Return values by the last parts of their keys."""
    pairs = ((decoded(each["key"]), decoded(each.get("value", ""))) for each in _kvs(answer))
    return {key.rpartition(b"/")[2].decode(): value.decode() for key, value in pairs}


def _text(life: Life) -> bytes:
    return " ".join((life.mark, str(life.size), life.lease)).encode()


def _life(text: bytes) -> Life:
    mark, size, lease = text.decode().split()
    return Life(mark, int(size), lease)
