"""`RedisStore`: a store on a server of Redis, or of what speaks its protocol."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rankwise.errors import DistStoreError, PluginError
from rankwise.stores import DEFAULT_TIMEOUT_S, Timeout, shortened
from rankwise_stores import lives
from rankwise_stores.kept import ServerStore
from rankwise_stores.line import Census, Ear, Life, Line, LostError, Seat, Server
from rankwise_stores.scripts import BEAT, CENSUS, FOUND, LEAVE, MARK, SETTLE, SIT, SWAP
from rankwise_stores.server_urls import RedisPlace, redis_place

try:
    import redis
    import redis.backoff
    import redis.connection
    import redis.retry
except ModuleNotFoundError as error:
    if error.name != "redis":
        raise
    _REMEDY = "pip install 'rankwise-stores[redis]'"
    raise PluginError(f"a RedisStore, and redis://, need the package redis: {_REMEDY}", _REMEDY) from None

#: Errors after which another attempt may find a server that is up, or the new master.
_PASSING = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.MasterDownError,
    OSError,
)
#: How long a server may take at least to go on with an answer that it has begun.
_REST_S = 1.0


class RedisStore(ServerStore):
    """A store whose keys lie on a server of Redis, which no rank and no launcher has to outlive.

    It begins empty with its first user, and the last one to close it removes all keys. Needs the package `redis`:
    `pip install 'rankwise-stores[redis]'`.

    Args:
        url: `redis://[user:password@]host:port/db?prefix=NAME`, `rediss://` with TLS, or `redis+unix:///path?prefix=NAME`.
        world_size: How many ranks use it, if `rank` is given.
        timeout: How long to wait for the server, and, from then on, for keys: a `timedelta` or seconds.
        rank: This process's rank, if it is one: then all that meet here have another one, and the same `world_size`.
        secret: The job secret, if it is not the one of the environment; groups that meet in the store have it too.

    Raises:
        ValueError: The URL makes no sense.
        DistNetworkError: The server cannot be reached.
        DistStoreError: It refuses this user, or another job uses the prefix.
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
            super().__init__(_Redis(redis_place(url)), rank, world_size, timeout, secret)


class _Redis(Server):
    """A server of Redis, and a prefix there."""

    def __init__(self, place: RedisPlace) -> None:
        self.place, self.prefix = place, place.prefix
        self.name, self.host = place.shown, place.host

    def line(self) -> Line:
        return _RedisLine(self)

    def ear(self) -> Ear:
        return _RedisEar(self)

    def connection(self) -> redis.connection.AbstractConnection:
        """Return a connection that is made with the first command, and never by itself again."""
        place = self.place
        common: dict[str, Any] = {"db": place.db, "username": place.user, "password": place.password, "protocol": 2}
        common |= {"retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0), "health_check_interval": 0}
        if place.path is not None:
            return redis.UnixDomainSocketConnection(path=place.path, **common)
        common |= {"host": place.host, "port": place.port}
        if place.tls is None:
            return redis.Connection(**common)
        names = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
        files = {names[name]: value for name, value in place.tls.items()}
        return redis.SSLConnection(**common, **files, ssl_check_hostname=True)

    @contextmanager
    def errors(self, connection: redis.connection.AbstractConnection) -> Iterator[None]:
        """Turn the errors of a block into ours; all but what the server says in an answer end the connection.

        Raises:
            LostError: Nobody knows whether the server has carried the request out.
            DistStoreError: It refuses.
        """
        try:
            yield
        except redis.exceptions.NoScriptError:
            raise
        except (redis.exceptions.AuthenticationError, redis.exceptions.AuthorizationError) as error:
            connection.disconnect()
            raise DistStoreError(f"{self.name}: the server refuses this user: {error}") from error
        except _PASSING as error:
            connection.disconnect()
            raise LostError(str(error)) from error
        except redis.exceptions.ResponseError as error:
            raise DistStoreError(f"{self.name}: the server refuses: {error}") from error
        except BaseException:
            connection.disconnect()
            raise

    def keys(self, mark: str) -> _Keys:
        """Return where the parts of a life lie."""
        return _Keys(*(f"{self.prefix}:{mark}:{part}" for part in _Keys._fields))

    @property
    def life_key(self) -> str:
        """Where it stands which life there is."""
        return f"{self.prefix}:life"


class _Keys(NamedTuple):
    """Where the parts of a life lie.

    Attributes:
        values: A hash of what users have stored, and of the mark of the life.
        numbers: A hash of the last number of each line, and by what it was taken.
        seats: A hash of the last beat of each user.
        present: A sorted set of users by when they count as gone, by the server's clock.
    """

    values: str
    numbers: str
    seats: str
    present: str


class _RedisLine(Line):
    """A connection to Redis."""

    def __init__(self, server: _Redis) -> None:
        super().__init__()
        self._server, self._connection = server, server.connection()
        #: What the server has noted as this line's last number.
        self._noted = b""

    def read(self, mark: str, keys: Sequence[str], within_s: float) -> list[bytes | None]:
        there, *found = self._ask(within_s, "HMGET", self._server.keys(mark).values, MARK, *keys)
        if there is None:
            self._is_gone()
        return list(found)

    def names(self, mark: str, within_s: float) -> list[str]:
        names = [name.decode() for name in self._ask(within_s, "HKEYS", self._server.keys(mark).values)]
        if MARK not in names:
            self._is_gone()
        return [name for name in names if name != MARK]

    def swap(
        self, life: Life, key: str, expected: bytes | None, desired: bytes | None, within_s: float
    ) -> bytes | None:
        keys, taken = self._server.keys(life.mark), b"%d swap" % (self.number + 1)
        words = MARK, self.name, self._noted, taken, key, *_word(expected), *_word(desired), f"{keys.values}:{key}"
        done, found = self._script(within_s, SWAP, keys[:2], *words)
        if done == b"gone":
            self._is_gone()
        if done == b"late":
            raise LostError("the server knows another number of this line")
        if done == b"done":
            self._noted, self.number = taken, self.number + 1
            return expected
        return found  # type: ignore[no-any-return]

    def settle(self, life: Life, within_s: float) -> bool:
        keys, taken = self._server.keys(life.mark), b"%d settled" % (self.number + 1)
        noted = self._script(within_s, SETTLE, keys[:2], MARK, self.name, self._noted, taken)
        if noted == b"gone":
            self._is_gone()
        had = b"%d swap" % (self.number + 1)
        self._noted, self.number = noted, int(noted.split()[0])
        return bool(noted == had)

    def _is_gone(self) -> None:
        raise DistStoreError(
            f"{self._server.name}: what this job has stored is gone: another job has begun under the same prefix, or "
            "the server has lost it, as one does that is started again without `appendonly yes`"
        )

    # ------------------------------------------------------------------ lives

    def census(self, within_s: float) -> Census:
        text = self._ask(within_s, "GET", self._server.life_key)
        if text is None:
            return Census(None, {})
        life = Life(*json.loads(text))
        flat, present = self._script(within_s, CENSUS, self._server.keys(life.mark)[2:])
        beats = zip(flat[::2], flat[1::2], strict=True)
        return Census(life, {name.decode(): Seat(beat.decode(), name in present) for name, beat in beats})

    def found(self, before: Life | None, life: Life, seat: str, beat: str, within_s: float) -> Life | None:
        old = self._server.keys("" if before is None else before.mark)
        keys = self._server.life_key, *self._server.keys(life.mark), *old
        began = self._script(
            within_s, FOUND, keys, "" if before is None else _text(before), _text(life), MARK, *self._terms(seat, beat)
        )
        return life if began else None

    def sit(self, life: Life, seat: str, beat: str, within_s: float) -> bool:
        keys = self._server.life_key, *self._server.keys(life.mark)
        return bool(self._script(within_s, SIT, keys, _text(life), *self._terms(seat, beat)))

    def beat(self, life: Life, seat: str, beat: str, within_s: float) -> bool:
        keys = self._server.life_key, *self._server.keys(life.mark)
        return bool(self._script(within_s, BEAT, keys, MARK, *self._terms(seat, beat)))

    def leave(self, life: Life, seat: str, is_rank: bool, within_s: float) -> None:
        keys = self._server.life_key, *self._server.keys(life.mark)
        self._script(within_s, LEAVE, keys, _text(life), seat, int(is_rank))

    @staticmethod
    def _terms(seat: str, beat: str) -> tuple[str, str, int, int]:
        return seat, beat, int(lives.PRESENT_S * 1000), int(lives.KEPT_S * 1000)

    # ------------------------------------------------------------------ requests

    def disconnect(self) -> None:
        self._connection.disconnect()

    def _script(self, within_s: float, script: str, keys: Sequence[str], *words: Any) -> Any:
        """Have the server run a script, in one step; it is sent in full only to a server that does not know it."""
        digest = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        try:
            return self._ask(within_s, "EVALSHA", digest, len(keys), *keys, *words)
        except redis.exceptions.NoScriptError:
            return self._ask(within_s, "EVAL", script, len(keys), *keys, *words)

    def _ask(self, within_s: float, *words: Any) -> Any:
        return _talk(self._server, self._connection, within_s, *words)


class _RedisEar(Ear):
    """A connection that is subscribed to the channel of one key, to which each swap of it says so."""

    def __init__(self, server: _Redis) -> None:
        self._server, self._connection = server, server.connection()

    def listen(self, mark: str, key: str, within_s: float) -> None:
        if self.key is not None:
            self.disconnect()  # what is still to come of another channel is not to be told apart
        channel = f"{self._server.keys(mark).values}:{key}"
        _talk(self._server, self._connection, within_s, "SUBSCRIBE", channel)
        self.key = key

    def wait(self, within_s: float) -> bool:
        with self._server.errors(self._connection):
            if not self._connection.can_read(timeout=within_s):
                return False
            self._connection.read_response()
            return True

    def disconnect(self) -> None:
        self.key = None
        self._connection.disconnect()


def _talk(server: _Redis, connection: redis.connection.AbstractConnection, within_s: float, *words: Any) -> Any:
    """Send a command, by a new connection if there is none, and return the answer."""
    # For a new connection; what reads the rest of a long answer keeps to the former, however little is left here.
    connection.socket_timeout, connection.socket_connect_timeout = max(within_s, _REST_S), max(within_s, 0.01)
    with server.errors(connection):
        connection.send_command(*words)
        if not connection.can_read(timeout=within_s):
            raise redis.exceptions.TimeoutError(f"no answer within {within_s:.3g} s")
        return connection.read_response()


def _word(value: bytes | None) -> tuple[str, bytes]:
    """Return a value as a script takes it: whether there is one, and which."""
    return ("0", b"") if value is None else ("1", value)


def _text(life: Life) -> str:
    return json.dumps(life)
