"""Every kind of store behaves the same: one class of tests, run over each kind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.core.alien import Alien, Bare
from tests.store_kinds import PLAIN_KINDS, MinimalStore, client_of
from tests.threads import at_once, ends_in_time, none_left, soon

from rankwise.errors import DistStoreError, DistTimeoutError, QueueEmptyError
from rankwise.store import HashStore, PrefixStore, Store, as_store, operations
from rankwise.store.base import ArrivalPoint
from rankwise.store.primitives import NO_KEYS, Series

PATIENCE_S = 20.0
MIB = 1 << 20

KINDS = {**PLAIN_KINDS, "tcp with secret": lambda stack, path: client_of(stack, b"s" * 32)}
NAMES = [*KINDS, *(f"prefix over {kind}" for kind in KINDS if kind != "tcp master")]

pytestmark = pytest.mark.usefixtures("no_secret")


def foreign(kind: type[Bare], stack: ExitStack, path: Path) -> Store:
    return stack.enter_context(as_store(stack.enter_context(closing(kind(str(path / "store"))))))


#: Those of other libraries can do less; see also `test_store_foreign.py`.
FOREIGN = {kind.__name__: partial(foreign, kind) for kind in (Bare, Alien)}
foreign_too = pytest.mark.parametrize("store", [*NAMES, *FOREIGN], indirect=True)


@pytest.fixture(params=NAMES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with ExitStack() as stack:
        inner = {**KINDS, **FOREIGN}[request.param.removeprefix("prefix over ")](stack, tmp_path)
        inner.set_timeout(PATIENCE_S)
        stack.enter_context(none_left(PATIENCE_S))  # a call that was heard of has not returned by that
        if request.param.startswith("prefix"):
            inner.set("a key of somebody else", "")
            inner.set("ours", "")
            yield PrefixStore("ours", inner)
        else:
            yield inner


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def all_arrive(store: Store, place: ArrivalPoint, series: Sequence[str]) -> tuple[bytes, list[bytes | None]]:
    """Have all arrive at a place at once, each with a key of its own; return what all of them get."""

    def arrive(rank: int) -> Any:
        return store._arrive({f"of/{rank}": b"%d" % rank}, place, series, 20.0)

    first, *others = at_once(arrive, range(place.size), PATIENCE_S)
    assert others == [first] * (place.size - 1)
    return first  # type: ignore[no-any-return]


class TestStore:
    # ------------------------------------------------------------------ values

    @foreign_too
    def test_a_value_comes_back_as_it_went_in_and_replaces_an_earlier_one(self, store: Store) -> None:
        for value in (b"", b"\0", b"\xff\xfe binary \0 inside", bytes(range(256)), b"x" * 100_000):
            store.set("key", value)
            assert store.get("key") == store.peek("key") == value
        assert store.peek("never") is None

    @foreign_too
    def test_text_is_stored_as_utf_8_and_any_buffer_as_its_bytes(self, store: Store) -> None:
        store.set("text", "naïve ☃")
        store.set("array", bytearray(b"ab"))
        store.set("view", memoryview(b"cd"))
        assert store.multi_get(["text", "array", "view"]) == ["naïve ☃".encode(), b"ab", b"cd"]

    def test_any_text_can_be_a_key(self, store: Store) -> None:
        keys = ["", " ", "a/b/c", "k\0", "k" * 8000, "x\ny", "ключ/☃"]
        for key in keys:
            store.set(key, key)
            assert store.get(key) == key.encode()
        assert store.list_keys() == keys

    def test_a_value_of_the_largest_size_is_stored_and_a_larger_one_refused(self, store: Store) -> None:
        largest = os.urandom(1024) * (8 * 1024)
        store.set("key", largest)
        assert store.get("key") == largest
        with pytest.raises(ValueError, match="8388609 bytes"):
            store.set("key", largest + b"x")
        assert store.compare_set("key", largest, largest[::-1]) == largest[::-1]

    def test_keys_that_cannot_be_are_refused(self, store: Store) -> None:
        for key in ("k" * 8193, "☃" * 2731, "\0reserved", "\ud800"):
            for call in (partial(store.set, key, ""), partial(store.get, key), partial(store.check, [key])):
                with pytest.raises(ValueError, match="key"):
                    call()

    def test_keys_that_are_no_text_and_values_that_are_no_bytes_are_a_type_error(self, store: Store) -> None:
        for key in (1, b"bytes", None):
            with pytest.raises(TypeError, match="a key must be a str"):
                store.get(key)  # type: ignore[arg-type]
        for value in (1, 1.5, None, ["x"]):
            with pytest.raises(TypeError, match="a value must be str or bytes"):
                store.set("key", value)  # type: ignore[arg-type]

    def test_a_lone_string_is_no_list_of_keys(self, store: Store) -> None:
        with pytest.raises(TypeError, match="list of str"):
            store.check("ab")

    # ------------------------------------------------------------------ add, compare_set, append, delete_key

    def test_add_counts_from_zero_and_stores_a_decimal_number(self, store: Store) -> None:
        assert store.add("n", 0) == 0
        assert store.add("n", 5) == 5
        assert store.add("n", -12) == -7
        assert store.get("n") == b"-7"
        store.set("n", "40")
        assert store.add("n", 2) == 42

    def test_add_to_what_is_no_number_is_an_error_that_changes_nothing(self, store: Store) -> None:
        for value in ("", "seven", "1.5", " 1", "1_0", "0x1"):
            store.set("n", value)
            with pytest.raises(DistStoreError, match=r"'(ours/)?n' is no integer"):
                store.add("n", 1)
            assert store.get("n") == value.encode()

    def test_add_stays_within_64_bits(self, store: Store) -> None:
        assert store.add("n", (1 << 63) - 1) == (1 << 63) - 1
        with pytest.raises(DistStoreError, match="64 bits"):
            store.add("n", 1)
        with pytest.raises(ValueError, match="64 bits"):
            store.add("n", 1 << 63)
        with pytest.raises(TypeError):
            store.add("n", 1.0)  # type: ignore[arg-type]
        assert store.add("n", 0) == (1 << 63) - 1
        assert store.add("least", -(1 << 63)) == -(1 << 63)
        with pytest.raises(DistStoreError, match="64 bits"):
            store.add("least", -1)

    def test_compare_set_creates_a_key_once_and_replaces_only_the_expected_value(self, store: Store) -> None:
        assert store.compare_set("key", "expected", "desired") == b""
        assert not store.check(["key"])
        assert store.compare_set("key", "", "a") == b"a"
        assert store.compare_set("key", "", "b") == b"a"
        assert store.compare_set("key", "b", "c") == b"a"
        assert store.compare_set("key", "a", "c") == b"c"
        assert store.get("key") == b"c"

    def test_append_creates_and_extends(self, store: Store) -> None:
        store.append("key", "ab")
        store.append("key", b"")
        store.append("key", b"\0c")
        assert store.get("key") == b"ab\0c"

    def test_append_beyond_the_largest_value_is_an_error_that_changes_nothing(self, store: Store) -> None:
        store.set("key", bytes(8 * MIB))
        with pytest.raises(DistStoreError, match="would grow to 8388609 bytes"):
            store.append("key", b"x")
        assert len(store.get("key")) == 8 * MIB

    def test_delete_key_tells_whether_there_was_one(self, store: Store) -> None:
        for value in ("", "again"):
            assert not store.delete_key("key")
            store.set("key", value)
            assert store.get("key") == value.encode()
            assert store.delete_key("key")
            assert not store.check(["key"])

    # ------------------------------------------------------------------ several keys

    @foreign_too
    def test_check_asks_for_all_keys(self, store: Store) -> None:
        store.multi_set(["a", "b"], ["", ""])
        assert store.check([])
        assert store.check(["a", "b"])
        assert not store.check(["a", "b", "c"])
        store.wait([])

    def test_values_are_set_and_others_are_read_in_one_request(self, store: Store) -> None:
        store.set("there", b"1")
        inner = PrefixStore("inner", store)
        assert store._set_and_peek({"mine": b"2"}, ["there", "mine", "missing"]) == [b"1", b"2", None]
        assert inner._set_and_peek({"mine": b"3", "too": b"5"}, ["mine", "there", "too"]) == [b"3", None, b"5"]
        large = b"x" * (3 << 20)
        store.multi_set(["a", "b", "c"], [large] * 3)
        assert store._set_and_peek({"mine": b"4"}, ["a", "b", "missing", "c"]) == [large, large, None, large]

    def test_what_is_there_is_kept_by_those_who_claim_it_later(self, store: Store) -> None:
        inner = PrefixStore("inner", store)
        store.set("inner/a", "first")
        assert inner._claim(["a", "b"], [b"1", b"2"]) == [b"first", b"2"]
        assert inner._claim(["b", "c"], [b"3", b"4"]) == [b"2", b"4"]

    def test_the_last_to_arrive_lets_all_go_on_with_what_they_want(self, store: Store) -> None:
        inner = PrefixStore("inner", store)
        assert all_arrive(inner, ArrivalPoint("come", "said", 3), Series("of/", 4)) == (b"ok", [b"0", b"1", b"2", None])
        with pytest.raises(DistTimeoutError, match="said', which nobody has set"):
            store._arrive({}, ArrivalPoint("other", "said", 2), NO_KEYS, PATIENCE_S / 40)

    def test_the_last_to_arrive_removes_what_nobody_needs_any_more(self, store: Store) -> None:
        inner, kept = PrefixStore("inner", store), ["inner/come", "inner/said", "outside/of/0"]
        place = ArrivalPoint("come", "said", 2, ("of/", "meet"))
        store.multi_set([*kept[2:], "inner/meet/config"], [b"kept", b"removed"])
        assert all_arrive(inner, place, NO_KEYS) == (b"ok", [])
        assert sorted(store.list_keys()) == kept
        store.set("other/said", "no")  # as a rank has that could not go on: the others still ask why
        other = ArrivalPoint("other/come", "other/said", 1, ("outside",))
        assert store._arrive({}, other, NO_KEYS, 20.0) == (b"no", [])
        assert store.get("outside/of/0") == b"kept"

    def test_all_who_arrive_get_what_each_has_brought(self, store: Store) -> None:
        inner, place, series = PrefixStore("inner", store), ArrivalPoint("come", "said", 12), Series("of/", 12)
        assert all_arrive(inner, place, series) == (b"ok", [b"%d" % rank for rank in range(12)])
        assert inner._arrive({"of/1": b"new"}, place, Series("of/", 2), 20.0) == (b"ok", [b"0", b"new"])
        with pytest.raises(DistTimeoutError, match="said', which nobody has set"):
            store._arrive({}, ArrivalPoint("other", "said", 2), Series("of/", 2), PATIENCE_S / 40)

    def test_those_who_arrive_hear_what_somebody_has_said_before(self, store: Store) -> None:
        large = b"x" * (3 << 20)
        store.multi_set(["said", "of/0", "of/1", "of/3"], [b"no", large, large, large])
        said, found = store._arrive({"of/2": b"4"}, ArrivalPoint("come", "said", 1), Series("of/", 4), 20.0)
        assert (said, found) == (b"no", [large, large, b"4", large])

    @foreign_too
    def test_multi_set_and_multi_get_keep_the_order(self, store: Store) -> None:
        keys = [f"key {number}" for number in range(300)]
        values = [str(number).encode() for number in range(300)]
        store.multi_set(keys, values)
        assert store.multi_get(keys[::-1]) == values[::-1]
        assert store.multi_get(["key 7", "key 7"]) == [b"7", b"7"]
        assert store.multi_get([]) == []
        store.multi_set([], [])

    def test_many_large_values_go_in_and_out_in_one_call(self, store: Store) -> None:
        keys, values = ["a", "b", "c"], [b"a" * 5 * MIB, b"b" * 5 * MIB, b"c"]
        store.multi_set(keys, values)
        assert store.multi_get(keys) == values

    def test_as_many_values_as_keys_are_needed(self, store: Store) -> None:
        with pytest.raises(ValueError, match="2 keys but 1 values"):
            store.multi_set(["a", "b"], ["x"])
        assert store.num_keys() == 0

    def test_only_the_users_keys_are_counted_and_listed(self, store: Store, threads: ThreadPoolExecutor) -> None:
        for value in ("", "another"):
            store.set("b", value)
        store.add("a", 1)
        store.append("c", "")
        store.queue_push("queue", "item")
        list(threads.map(lambda _: store.barrier("barrier", 2), range(2)))
        assert store.num_keys() == 3
        assert store.list_keys() == ["a", "b", "c"]
        store.delete_key("b")
        assert store.list_keys() == ["a", "c"]

    def test_a_long_list_of_keys_is_complete(self, store: Store) -> None:
        keys = sorted(f"{number:05}" + "k" * 7000 for number in range(700))
        store.multi_set(keys, [b""] * len(keys))
        assert store.list_keys() == keys
        assert store.num_keys() == 700

    # ------------------------------------------------------------------ waiting

    def test_get_wait_and_multi_get_wait_for_another_thread(self, store: Store, threads: ThreadPoolExecutor) -> None:
        waiting: list[Future[Any]] = [
            threads.submit(store.get, "a"),
            threads.submit(store.wait, ["a", "b"]),
            threads.submit(store.multi_get, ["b", "a"]),
        ]
        store.set("a", "1")
        store.set("b", "2")
        assert [call.result(PATIENCE_S) for call in waiting] == [b"1", None, [b"2", b"1"]]

    def test_a_swap_wakes_those_who_wait(self, store: Store, threads: ThreadPoolExecutor) -> None:
        waiting = threads.submit(store.get, "key", timeout=PATIENCE_S)
        soon(store.swap, "key", None, b"there")
        assert waiting.result(PATIENCE_S / 2) == b"there"

    def test_waiting_ends_for_all_who_wait(self, store: Store, threads: ThreadPoolExecutor) -> None:
        waiting = [threads.submit(store.get, "key") for _ in range(7)]
        soon(store.set, "key", "there")
        assert {call.result(PATIENCE_S) for call in waiting} == {b"there"}

    @pytest.mark.parametrize("timeout_s", [0.01, 0.1])
    def test_waiting_in_vain_ends_at_its_time_out(self, store: Store, timeout_s: float) -> None:
        span = timedelta(seconds=timeout_s)
        for wait in (partial(store.get, "key", timeout=timeout_s), partial(store.queue_pop, "queue", timeout=span)):
            assert ends_in_time(wait, timeout_s + 0.1, at_least_s=timeout_s)

    def test_a_missing_key_is_the_same_error_everywhere_and_is_named(self, store: Store) -> None:
        store.set("here", "")
        with pytest.raises(DistTimeoutError, match=r"get on .*waited 0.01 s for key '(ours/)?absent'"):
            store.get("absent", timeout=0.01)
        with pytest.raises(DistTimeoutError, match=r"wait on .*for keys '(ours/)?absent', '(ours/)?gone', which"):
            store.wait(["here", "absent", "gone"], timeout=0.01)
        with pytest.raises(DistTimeoutError, match=r"multi_get on .*for key '(ours/)?absent', which nobody"):
            store.multi_get(["absent", "here"], timeout=0.01)
        with pytest.raises(TimeoutError, match=r"queue_pop on .*queue '(ours/)?absent'"):
            store.queue_pop("absent", timeout=0)

    def test_the_stores_own_time_out_counts_where_none_is_given(self, store: Store) -> None:
        store.set_timeout(timedelta(milliseconds=30))
        assert store.timeout == timedelta(milliseconds=30)
        with pytest.raises(DistTimeoutError, match=r"waited 0.03 s"):
            store.get("key")
        store.set_timeout(2)
        assert store.timeout == timedelta(seconds=2)
        for wrong in (-1, float("nan")):
            with pytest.raises(ValueError, match="timeout"):
                store.set_timeout(wrong)

    def test_an_endless_time_out_is_allowed(self, store: Store, threads: ThreadPoolExecutor) -> None:
        waiting = threads.submit(store.get, "key", float("inf"))
        store.set("key", "v")
        assert waiting.result(PATIENCE_S) == b"v"
        store.set_timeout(timedelta.max)
        assert store.timeout > timedelta(days=365)
        assert store.get("key") == b"v"

    # ------------------------------------------------------------------ queues

    def test_a_queue_gives_back_in_order(self, store: Store) -> None:
        items = [b"first", b"", b"\0third"]
        for item in items:
            store.queue_push("queue", item)
        assert store.queue_len("queue") == 3
        assert [store.queue_pop("queue") for _ in items] == items
        assert store.queue_len("queue") == 0

    def test_an_empty_queue_is_an_error_unless_one_waits(self, store: Store, threads: ThreadPoolExecutor) -> None:
        with pytest.raises(QueueEmptyError, match=r"queue '(ours/)?queue' is empty"):
            store.queue_pop("queue", block=False)
        waiting = threads.submit(store.queue_pop, "queue")
        store.queue_push("queue", "item")
        assert waiting.result(PATIENCE_S) == b"item"

    def test_a_queue_and_a_key_of_one_name_are_apart(self, store: Store) -> None:
        store.set("name", "value")
        store.queue_push("name", "item")
        store.delete_key("name")
        assert store.queue_pop("name") == b"item"

    def test_each_item_is_taken_once(self, store: Store, threads: ThreadPoolExecutor) -> None:
        takers = [threads.submit(lambda: [store.queue_pop("queue") for _ in range(20)]) for _ in range(4)]
        for number in range(80):
            store.queue_push("queue", str(number))
        taken = [int(item) for taker in takers for item in taker.result(PATIENCE_S)]
        assert sorted(taken) == list(range(80))

    def test_a_queue_holds_no_more_than_a_value(self, store: Store) -> None:
        store.queue_push("queue", bytes(8 * MIB - 20))
        with pytest.raises(DistStoreError, match=r"queue '(ours/)?queue' would grow"):
            store.queue_push("queue", b"")
        assert store.queue_len("queue") == 1

    # ------------------------------------------------------------------ barriers

    def test_a_barrier_can_be_used_again_and_again(self, store: Store, threads: ThreadPoolExecutor) -> None:
        passed: list[int] = []

        def cross(_: int) -> None:
            for turn in range(10):
                store.barrier("barrier", 3)
                passed.append(turn)

        list(threads.map(cross, range(3), timeout=PATIENCE_S))
        # Nobody is a whole turn ahead.
        assert all(abs(turn - index // 3) <= 1 for index, turn in enumerate(passed))

    def test_a_barrier_that_some_do_not_come_to_says_how_many_came(
        self, store: Store, threads: ThreadPoolExecutor
    ) -> None:
        with pytest.raises(DistTimeoutError, match=r"barrier on .*barrier '(ours/)?b', to which 1 of 2 have come"):
            store.barrier("b", 2, timeout=0.02)
        # Who has given up has not come: the next two meet each other.
        list(threads.map(lambda _: store.barrier("b", 2), range(2), timeout=PATIENCE_S))
        assert ends_in_time(partial(store.barrier, "b", 2, timeout=0.01), 0.11, at_least_s=0.01)

    def test_a_barrier_of_one_does_not_wait_and_one_of_none_is_refused(self, store: Store) -> None:
        store.barrier("b", 1, timeout=0)
        with pytest.raises(ValueError, match="at least 1"):
            store.barrier("b", 0)

    def test_a_barrier_with_two_sizes_is_an_error(self, store: Store, threads: ThreadPoolExecutor) -> None:
        first = threads.submit(store.barrier, "b", 3, PATIENCE_S)
        told: BaseException | None = None
        while told is None:
            # The second to come is told; that may also be the one in the thread.
            try:
                store.barrier("b", 2, timeout=0.01)
            except DistTimeoutError:
                told = first.exception(0) if first.done() else None
            except DistStoreError as error:
                told = error
        assert re.fullmatch(r"barrier '(ours/)?b': world_size is [23] here, but [23] for 1 that came before", str(told))
        if not first.done():
            list(threads.map(lambda _: store.barrier("b", 3, PATIENCE_S), range(2)))
            first.result(PATIENCE_S)

    # ------------------------------------------------------------------ many threads, copies, the end

    @foreign_too
    def test_no_count_is_lost(self, store: Store, threads: ThreadPoolExecutor) -> None:
        assert len(set(threads.map(lambda _: store.add("n", 1), range(240)))) == 240
        assert store.get("n") == b"240"

    def test_nothing_that_is_appended_is_lost(self, store: Store, threads: ThreadPoolExecutor) -> None:
        list(threads.map(lambda _: store.append("text", "x"), range(240)))
        assert store.get("text") == b"x" * 240

    @foreign_too
    def test_one_of_many_wins_a_compare_set(self, store: Store, threads: ThreadPoolExecutor) -> None:
        answers = set(threads.map(lambda name: store.compare_set("key", "", name), "abcdef"))
        assert len(answers) == 1

    def test_a_clone_has_the_same_content_and_a_time_out_of_its_own(self, store: Store) -> None:
        store.set("key", "v")
        with store.clone() as twin:
            assert twin.get("key") == b"v"
            twin.set("other", "w")
            twin.set_timeout(1.5)
            if not isinstance(store, PrefixStore):
                assert store.timeout == timedelta(seconds=PATIENCE_S)
        assert store.get("other") == b"w"

    def test_closing_twice_is_fine_and_a_closed_store_says_so(self, store: Store) -> None:
        with store as same:
            assert same is store
        store.close()
        for call in (lambda: store.set("a", ""), lambda: store.get("a"), store.num_keys, lambda: store.check([])):
            with pytest.raises(DistStoreError, match="closed"):
                call()

    def test_closing_ends_the_waiting_of_other_threads(self, store: Store, threads: ThreadPoolExecutor) -> None:
        if isinstance(store, PrefixStore):
            store = store.underlying_store
        waiting = [threads.submit(store.get, "key"), threads.submit(store.queue_pop, "queue")]
        soon(store.close)
        for call in waiting:
            with pytest.raises(DistStoreError, match="closed"):
                call.result(PATIENCE_S)

    def test_a_store_can_be_a_key_of_a_weak_dictionary(self, store: Store) -> None:
        from weakref import WeakKeyDictionary

        assert WeakKeyDictionary({store: 1})[store] == 1


def test_a_kind_that_misses_a_method_cannot_be_made() -> None:
    class Half(MinimalStore):
        swap = Store.swap

    with pytest.raises(TypeError, match="swap"):
        Half()


def test_a_prefix_closes_the_store_below_only_if_it_has_cloned_it() -> None:
    inner = HashStore()
    outer = PrefixStore("a", inner)
    twin = outer.clone()
    below = twin.underlying_store
    assert below is not inner
    twin.close()
    with pytest.raises(DistStoreError, match="closed"):
        below.set("key", "1")
    outer.close()
    inner.set("key", "1")


def test_prefixes_nest_and_keep_apart() -> None:
    inner = HashStore()
    outer, other = PrefixStore("a", PrefixStore("b", inner)), PrefixStore("b/a2", inner)
    outer.set("key", "1")
    other.set("key", "2")
    assert inner.list_keys() == ["b/a/key", "b/a2/key"]
    assert outer.list_keys() == ["key"]
    assert (outer.num_keys(), other.num_keys(), inner.num_keys()) == (1, 1, 2)
    assert outer.prefix == "a"
    with pytest.raises(TypeError, match="must be a Store"):
        PrefixStore("a", "b")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.get("ours/key", 0.05),
        lambda store: store.wait(["ours/key"], 0.05),
        lambda store: store.multi_get(["ours/key"], 0.05),
        lambda store: store.add("ours/word", 1),
        lambda store: store.queue_pop("ours/key", block=False),
        lambda store: store.barrier("ours/key", 2, 0.05),
        lambda store: store.get("ours/" + "k" * 9000),
    ],
    ids=["get", "wait", "multi_get", "add", "queue_pop", "barrier", "long"],
)
def test_errors_call_a_key_as_the_program_does(call):
    """With a prefix or two that the program knows nothing of, and a key that begins as these do."""
    bare = HashStore()
    for store in (bare, PrefixStore("life", bare), PrefixStore("ours", PrefixStore("life", bare))):
        store.set("ours/word", "a word")
        with pytest.raises((DistStoreError, DistTimeoutError, ValueError)) as caught:
            call(store)
        assert "'ours/" in str(caught.value)
        assert "life" not in str(caught.value)


def test_keys_are_listed_in_pages_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page has one key at least, however long, and as many as fit where all their characters take four bytes."""
    store = HashStore()
    keys = [f"{number:08}" for number in range(7)]
    for key in keys:
        store.set(key, "")
    for room, length in ((1, 1), (40, 1), (80, 2), (119, 2), (120, 3)):
        monkeypatch.setattr(operations, "PAGE_NBYTES", room)
        assert operations.list_keys(store, "") == (keys[:length], False)
        assert operations.list_keys(store, keys[-2]) == (keys[-1:], True)


def test_what_an_operation_waits_for_is_told_without_values() -> None:
    assert operations.waited_for(["key", 3, b"a value"]) == "'key', 3"
