"""Stores of other libraries: what the adapter makes of them, and what it needs of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.core.alien import Alien, Bare
from tests.processes import wait_until
from tests.threads import within

import rankwise as dist
from rankwise.store import PrefixStore, Store, as_store
from rankwise.store.base import ArrivalPoint
from rankwise.store.operations import FINE
from rankwise.store.primitives import NO_KEYS, Series

PATIENCE_S = 30.0
LEEWAY_S = 1.0
_SHORT_S = 0.05


@pytest.fixture(params=[Bare, Alien], ids=["bare", "whole"])
def other(request: pytest.FixtureRequest, path: str) -> Iterator[Bare]:
    with closing(request.param(path)) as store:
        yield store


@pytest.fixture
def store(other: Bare) -> Iterator[Store]:
    with as_store(other) as adapted:
        yield adapted


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def test_a_store_of_ours_is_left_as_it_is() -> None:
    own = dist.HashStore()
    assert as_store(own) is own


@pytest.mark.parametrize("name", ["set", "add", "compare_set", "wait"])
def test_what_lacks_a_method_is_refused_by_name(name: str, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(Alien, name, None)
    with pytest.raises(TypeError, match=rf"a store must have {name}, which Alien does not"):
        as_store(Alien(path))


def test_a_store_whose_connection_is_lost_is_not_asked_again(path: str) -> None:
    asked = []

    class DistNetworkError(RuntimeError):
        """As torch's is called."""

    class Lost(Bare):
        def add(self, key: str, amount: int) -> int:
            asked.append(key)
            raise DistNetworkError("sendBytes failed: Broken pipe")

    with closing(Lost(path)) as other, as_store(other) as store:
        for key in ("one", "two", "three"):
            with pytest.raises(dist.DistStoreError, match=r"add on .*DistNetworkError: sendBytes failed: Broken pipe"):
                store.add(key, 1)
    assert asked == ["one"]


def test_counters_are_read_as_decimal_numbers(store: Store) -> None:
    assert [store.add("count", 3), store.add("count", -5)] == [3, -2]
    assert store.get("count") == b"-2"
    store.set("word", "x")
    with pytest.raises(dist.DistStoreError, match=r"add on ForeignStore.*StoreError: invalid stoi"):
        store.add("word", 1)


def test_compare_set_tells_what_is_there_afterwards(store: Store) -> None:
    assert store.compare_set("key", "", "a") == b"a"
    assert store.compare_set("key", "", "b") == b"a"
    assert store.compare_set("key", "a", "b") == b"b"
    assert store.compare_set("key", "b", "b") == b"b"
    store.set("empty", "")
    assert store.compare_set("empty", "", "c") == b"c"
    # torch says that what was expected is there.
    assert store.compare_set("never", "x", "y") == b""
    assert store.compare_set("never", "x", "x") == b""
    assert not store.check(["never"])


@pytest.mark.parametrize("wait", ["get", "wait", "multi_get"])
def test_waiting_ends_when_the_keys_come_and_hinders_nobody(store: Store, wait: str) -> None:
    keys = "c" if wait == "get" else ["a", "b", "c"]
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(getattr(store, wait), keys, timeout=PATIENCE_S)
        for key in ("b", "a"):
            with within(LEEWAY_S):
                store.set(key, key)
        assert not waiting.done()
        store.set("c", "c")
        found = {"get": b"c", "wait": None, "multi_get": [b"a", b"b", b"c"]}[wait]
        assert waiting.result(PATIENCE_S) == found


def test_a_wait_in_vain_ends_in_time_and_names_the_keys(store: Store) -> None:
    store.set("here", "x")
    expected = r"timed out: wait on ForeignStore.*: waited 0.2 s for key 'gone'"
    with within(2 * LEEWAY_S, at_least_s=0.15), pytest.raises(dist.DistTimeoutError, match=expected):
        store.wait(["here", "gone"], timedelta(seconds=0.2))
    with pytest.raises(dist.DistTimeoutError, match=r"timed out: get on .*: waited 0 s for key 'gone'"):
        store.get("gone", timeout=0)
    store.set_timeout(0.1)
    with pytest.raises(dist.DistTimeoutError, match=r"waited 0.1 s for keys 'gone', 'lost'"):
        store.multi_get(["here", "gone", "lost"])


def test_whoever_waits_for_many_asks_for_one(path: str) -> None:
    asked: list[int] = []

    class Counting(Alien):
        def check(self, keys: list[str]) -> bool:
            asked.append(len(keys))
            return super().check(keys)

    store = as_store(Counting(path))
    keys = [f"key{number}" for number in range(1000)]
    store.multi_set(keys[:700], keys[:700])
    with pytest.raises(dist.DistTimeoutError, match="key700"):
        store.wait(keys, timeout=0.2)
    assert sum(count > 1 for count in asked[: -len(keys)]) < 15
    store.multi_set(keys[700:], keys[700:])
    assert store.multi_get(keys, timeout=5) == [key.encode() for key in keys]
    store.close()


def test_many_values_go_at_once_where_the_store_can(path: str) -> None:
    asked: list[str] = []

    class Extended(Alien):
        def has_extended_api(self) -> bool:
            return True

        def multi_set(self, keys: list[str], values: list[bytes]) -> None:
            asked.append("multi_set")
            for key, value in zip(keys, values, strict=True):
                super().set(key, value)

        def multi_get(self, keys: list[str]) -> list[bytes]:
            asked.append("multi_get")
            return [super(Extended, self).get(key) for key in keys]

    store = as_store(Extended(path))
    store.multi_set(["of/0", "of/1"], ["1", "2"])
    assert store.multi_get(["of/0", "of/1"]) == [b"1", b"2"]
    series = Series("of/", 3)
    assert store._arrive({series[2]: b"3"}, ArrivalPoint("come", "said", 1), series, 5) == (FINE, [b"1", b"2", b"3"])
    series = Series("of/", 4)
    assert store._arrive({}, ArrivalPoint("come again", "said again", 1), series, 5) == (FINE, [b"1", b"2", b"3", None])
    assert asked[:2] == ["multi_set", "multi_get"]
    store.close()


def test_the_last_to_come_asks_no_more_for_what_it_has_said_itself(path: str) -> None:
    asked = []

    class Counted(Alien):
        def __getattribute__(self, name: str) -> Any:
            if name in ("set", "get", "add", "compare_set", "check"):
                asked.append(name)
            return super().__getattribute__(name)

    with closing(Counted(path)) as other, as_store(other) as store:
        assert store._arrive({}, ArrivalPoint("come", "said", 1), NO_KEYS, 5) == (FINE, [])
        assert asked[-2:] == ["add", "compare_set"]
        store.compare_set("said otherwise", "", "no")
        assert store._arrive({}, ArrivalPoint("come again", "said otherwise", 1), NO_KEYS, 5) == (b"no", [])


def test_a_call_of_the_program_that_waits_in_the_other_store_keeps_nobody(path: str) -> None:
    other = Alien(path)
    store = as_store(other)
    with ThreadPoolExecutor(1) as threads, within(5 * LEEWAY_S):
        released = threads.submit(other.get, "release")
        assert wait_until(other._one_call.locked, PATIENCE_S)  # it has begun to wait
        store.set("key", "value")
        assert store.get("key") == b"value"
        store.set("release", "")
        released.result(PATIENCE_S)
    store.close()


@pytest.mark.parametrize(
    "operation",
    [
        lambda s: s.peek("key"),
        lambda s: s.get("key", timeout=_SHORT_S),
        lambda s: s.multi_get(["key", "other"], timeout=_SHORT_S),
        lambda s: s.wait(["key", "other"], timeout=_SHORT_S),
        lambda s: s.check(["key", "other"]),
        lambda s: s.add("key", 1),
        lambda s: s.compare_set("key", "1", "2"),
        lambda s: s._set_and_peek({"mine": b"3"}, ["key", "other"]),
        lambda s: s.delete_prefix(""),
        lambda s: s.list_keys(),
    ],
    ids="peek get multi_get wait check add compare_set set_and_peek delete_prefix list_keys".split(),
)
def test_no_operation_waits_in_the_other_store_for_what_is_deleted_meanwhile(
    path: str, operation: Callable[[Any], object]
) -> None:
    """Between its requests somebody deletes all that it may wait for; a request that waits then fails."""
    requests = 0

    def after_a_deletion(method: Callable[..., Any]) -> Callable[..., Any]:
        def request(self: Alien, *args: Any) -> Any:
            nonlocal requests
            requests += 1
            if requests > 1:
                for key in ("key", "other"):
                    self._table.delete_key(key)
            return method(self, *args)

        return request

    class Deleted(Alien):
        set, add, compare_set, wait = map(after_a_deletion, (Alien.set, Alien.add, Alien.compare_set, Alien.wait))
        get, check = map(after_a_deletion, (Alien.get, Alien.check))
        delete_key, list_keys = map(after_a_deletion, (Alien.delete_key, Alien.list_keys))

        def has_extended_api(self) -> bool:
            return True

        def multi_get(self, keys: list[str]) -> list[bytes]:
            return [self.get(key) for key in keys]

        def multi_set(self, keys: list[str], values: list[bytes]) -> None:
            for key, value in zip(keys, values, strict=True):
                self.set(key, value)

    with closing(Deleted(path, patience_s=0.0)) as other:
        other._table.multi_set(["key", "other"], ["1", "1"])
        said = expected = "waited 0.05 s for key"
        with as_store(other) as store:
            try:
                operation(store)
            except dist.DistTimeoutError as error:
                said = str(error)
        assert expected in said


def test_a_clone_that_cannot_be_had_is_done_without(path: str) -> None:
    class Unwilling(Alien):
        def clone(self) -> Alien:
            raise RuntimeError("Tried to call pure virtual function")

    other = Unwilling(path)
    with as_store(other) as store:
        store.set("key", "value")
    assert other.get("key") == b"value"  # it is open: it was never ours


def test_the_client_of_our_own_is_closed_and_the_programs_is_not(path: str) -> None:
    closed: list[Alien] = []

    class Closing(Alien):
        def close(self) -> None:
            closed.append(self)
            super().close()

    other = Closing(path)
    store = as_store(other)
    view, twin = store.view(1), store.clone()
    twin.set("key", "value")
    assert view.get("key") == b"value"
    store.close()
    store.close()
    (own,) = closed
    assert own is not other
    for gone in (store, view):
        with pytest.raises(dist.DistStoreError, match="has been closed"):
            gone.set("key", "value")
    assert twin.get("key") == b"value"
    twin.close()
    assert other.get("key") == b"value"


def test_keys_are_listed_and_deleted_where_they_can_be(other: Bare, store: Store) -> None:
    part = PrefixStore("part", store)
    part.multi_set(["a", "b"], ["1", "2"])
    store.set("other", "3")
    can = isinstance(other, Alien)
    assert part.delete_prefix("") == (2 if can else 0)
    assert store.delete_key("other") == can
    if can:
        assert store.list_keys() == []
    else:
        with pytest.raises(dist.DistStoreError, match="cannot list its keys"):
            store.list_keys()


@pytest.mark.parametrize(
    "operation",
    [lambda s: s.append("k", "v"), lambda s: s.queue_push("q", "v"), lambda s: s.barrier("b", 1, 1)],
    ids=["append", "queue", "barrier"],
)
def test_what_such_a_store_cannot_do_is_said(store: Store, operation: Callable[[Store], object]) -> None:
    with pytest.raises(dist.DistStoreError, match="has no queues, barriers, append and swap"):
        operation(store)


def test_an_error_of_the_other_store_is_one_of_ours(path: str) -> None:
    class Broken(Alien):
        def set(self, key: str, value: str | bytes) -> None:
            raise ConnectionResetError("connection reset by peer")

        def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
            raise RuntimeError("Socket Timeout")

    store = as_store(Broken(path))
    with pytest.raises(dist.DistStoreError, match=r"set on ForeignStore.*: ConnectionResetError: conn") as told:
        store.set("key", "value")
    assert isinstance(told.value.__cause__, ConnectionResetError)
    with pytest.raises(dist.DistTimeoutError, match=r"timed out: compare_set on ForeignStore.*: Socket Timeout"):
        store.compare_set("key", "", "value")


def test_text_is_taken_for_bytes_and_the_host_is_known(tmp_path: Path) -> None:
    class Texts(Alien):
        def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> str:  # type: ignore[override]
            return super().compare_set(key, expected, desired).decode()

    class Wrapper(Texts):
        host = None  # type: ignore[assignment]
        underlying_store = Texts(str(tmp_path / "inner"))

    store = as_store(Wrapper(str(tmp_path / "store")))
    store.set("key", "value")
    assert store.get("key") == b"value"
    assert getattr(store, "host") == "127.0.0.1"  # noqa: B009 - only this kind has it
    assert getattr(as_store(Bare(str(tmp_path / "third"))), "host") is None  # noqa: B009
