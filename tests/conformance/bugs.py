"""The bugs that are planted, one backend each, and which tests of the kit must catch them.

`python tests/conformance/bugs.py KIND` tries those of one kind in one process, and prints what became of each as a line
of JSON; `--write` tries all, and writes the table of `docs/planted-bugs.md`; `--times 10 --draw 12 --seed 0` tries some
that are drawn, or those that are named, ten times each.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LIARS = HERE / "liars"

#: How many processes try the bugs of a kind.
AT_ONCE = 4

#: For each kind, a module of `liars` (those of `alone` have one each): what runs (`-k`), and which tests may fail.
BUGS: dict[str, dict[str, tuple[str, str]]] = {
    "values": {
        "min_loses_zero": ("zeros_keep and float32", r".*\[float32-MIN-all_reduce\]"),
        "narrow_sum": ("narrow_floats", r".*\[float16-SUM-all_reduce\]"),
        "order_of_ranks": ("same_bits", r".*same_bits.*"),
        "saturates": ("integers_wrap or test_shapes", r"test_integers_wrap_around"),
        "exclusive_or": ("test_cell and all_reduce-SUM", r".*\[all_reduce-SUM-bool\]"),
        "one_factor": ("factor or test_shapes", r"test_each_rank_has_its_own_factor.*\[float32-all_reduce\]"),
        "conjugates": ("test_cell and all_reduce-PRODUCT", r".*\[all_reduce-PRODUCT-complex64\]"),
        "forgets_nat": ("nan_wins and MIN", r".*\[datetime64-MIN-all_reduce\]"),
        "rounded_max": ("ends_of_their_range and MAX", r".*\[MAX-all_reduce\]"),
        "or_for_xor": ("test_cell and all_reduce-BXOR", r".*\[all_reduce-BXOR-uint16\]"),
        "changes_the_root": ("test_cell and broadcast", r".*\[broadcast-float32\]"),
        "changes_the_others": ("any_count and reduce and 3", r".*\[reduce-3\]"),
        "changes_the_parts": ("test_cell and reduce_scatter-SUM", r".*\[reduce_scatter-SUM-\w+\]"),
        "misses_its_own": ("any_count and gather", r".*\[gather-[1234]\]"),
        "global_root": ("members_may_stand", r".*\[broadcast\]"),
        "nothing_from_who_has_nothing": ("nothing_for_each or test_shapes", r".*nothing_for_each_other\[(?!at all).*"),
        "bad_at_six": ("larger_worlds", r".*\[6\]"),
        "bad_at_eight": ("larger_worlds", r".*\[8\]"),
        "bad_at_ten": ("larger_worlds", r".*\[10\]"),
        "third_root": ("any_count and scatter", r".*\[scatter-4\]"),
        "drops_dimensions": ("keep_their_shape", r".*\[\(\)\]"),
        "short_of_one": ("test_uneven", r"test_each_rank_has_its_own_length\[[234]\]"),
        "swaps_fields": ("every_layout and gather and 2", r".*\[gather-2\]"),
        "odd_counts": ("any_count and broadcast", r".*\[broadcast-[234]\]"),
        "ignores_nan": ("nan_wins and all_reduce and float", r"test_nan_wins.*\[float\d+-MAX-all_reduce\]"),
        "signed_min": (
            "ends_of_their_range and all_reduce or products or nan_wins and MIN-all_reduce",
            r"test_integers_at_the_ends.*\[MIN-all_reduce\]",
        ),
        "float_product": (
            "products or ends_of_their_range and (PRODUCT-all or SUM-all)",
            r"test_products.*\[int64-all_reduce\]|test_integers_at_the_ends.*\[PRODUCT-all_reduce\]",
        ),
        "bad_end": ("very_end or large_arrays or test_layouts", r"test_long_arrays.*\[broadcast\]"),
    },
    "arithmetic": {
        "nat_is_nothing": ("nan_wins and SUM", r".*\[timedelta64-SUM-all_reduce\]"),
        "narrow_average": ("narrow_floats", r".*\[float16-AVG-all_reduce\]"),
        "narrow_product": ("narrow_floats", r".*\[float16-PRODUCT-all_reduce\]"),
        "real_factors": ("factor", r".*\[complex\d+-(all_reduce|reduce|reduce_scatter)\]"),
        "rounded_factors": ("factor", r".*\[float64-(all_reduce|reduce|reduce_scatter)\]"),
        "no_factor_alone": ("factor", r"test_each_rank_has_its_own_factor.*"),
        "whole_factors": ("factor", r".*\[float\d+-(all_reduce|reduce|reduce_scatter)\]"),
        "flushes_subnormals": ("subnormals", r".*\[float64-\w+-all_reduce\]"),
        "subnormals_are_nothing": ("subnormals", r".*\[float32-MAX-all_reduce\]"),
        "average_of_two": ("test_cell and all_reduce-AVG", r".*\[all_reduce-AVG-float64\]"),
        "product_of_two": ("ends_of_their_range and PRODUCT", r".*\[PRODUCT-all_reduce\]"),
        "low_byte_alone": ("ends_of_their_range and B", r".*\[BAND-all_reduce\]"),
        "avg_in_reduce": ("test_cell and reduce-AVG", r".*\[reduce-AVG-float32\]"),
    },
    "messages": {
        "tag_of_24_bits": ("tags_tell or every_bit or batch", r"test_every_bit_of_a_tag_counts"),
        "one_byte_in_16_mib": ("very_long", r".*\[(16777217|38797315)\]"),
        "last_of_64_kib": ("any_size or very_long", r"test_any_size.*"),
        "misnames_the_sender": ("any_source or sender_is_told or batch", r"test_any_source.*|test_the_sender.*"),
        "overtakes": ("one_stream_stay or very_long", r"test_messages_of_one_stream.*"),
        "wants_the_size": ("shorter or batch", r"test_a_shorter.*"),
        "cuts_off": ("longer or batch", r"test_a_longer.*"),
        "mixes_groups": ("do_not_meet or batch", r"test_messages_of_a_group_and.*"),
        "not_to_itself": ("to_itself or batch", r"test_a_rank_may_send_to_itself"),
        "nothing_is_no_message": ("of_nothing or batch", r"test_a_message_of_nothing.*"),
        "waits_in_isend": ("much_at_once or batch", r"test_two_ranks_send.*|test_both_may_send.*"),
        "free_too_early": ("buffer_is_free or batch", r"test_a_message_reports.*"),
        "takes_what_was_withdrawn": ("withdrawn or batch", r"test_a_receive_that_is_withdrawn.*"),
        "keeps_messages": ("small_call and send or test_shapes", r"test_a_small_call.*"),
        "takes_what_it_probes": ("probed or how_much", r"test_messages_of_any_length_are_probed"),
        "probes_what_was_received": (
            "probed or how_much",
            r"test_a_message_that_was_probed.*|test_messages_of_any_length_are_probed",
        ),
        "probes_any_tag": ("probe_goes or how_much", r"test_a_probe_goes_by_its_tag"),
        "probes_of_rank_0": ("probe_of_anyone or how_much", r"test_a_probe_of_anyone.*"),
        "got_all_it_had_room_for": ("probed or how_much", r"test_a_receive_of_a_shorter.*"),
        "tells_what_others_get": ("is_not_told or how_much", r"test_what_a_receive_waits_for.*"),
    },
    "lengths": {
        "bad_at_16_kib": ("power_of_two and reduce", r".*\[all_reduce\]"),
        "long_parts_of_the_third_root": ("large_arrays and scatter", r".*\[scatter\]"),
        "bad_from_eleven_on": ("larger_worlds", r".*\[(11|16)\]"),
        "bad_at_sixteen": ("larger_worlds", r".*\[16\]"),
        "one_less_than_a_block": ("power_of_two and (gather or scatter)", r".*\[all_gather\]"),
        "one_more_than_a_block": ("power_of_two and scatter", r".*\[reduce_scatter\]"),
        "long_to_the_last_root": ("large_arrays and gather", r".*\[gather\]"),
        "long_exchange": ("large_arrays and all", r".*\[all_to_all\]"),
        "three_of_four_in_reduce": ("power_of_two and reduce", r".*\[reduce\]"),
    },
    "letters": {
        "keeps_its_own": ("what_the_array_was or batch", r"test_what_is_sent.*"),
        "keeps_what_is_short": ("what_the_array_was or batch", r"test_what_is_sent.*\[(1|1000)\]"),
        "refused_and_kept": ("too_long_is_gone or batch", r"test_a_message_that_was_too_long_is_gone"),
        "anyone_of_any_tag": ("anyone_that_waits or batch", r"test_a_receive_from_anyone_that_waits.*"),
        "lengths_of_31_bits": ("31_bits or batch", r"test_a_message_may_be_longer_than_31_bits_tell"),
        "anyone_but_the_last": ("anyone_that_waits or batch", r"test_a_receive_from_anyone_that_waits.*"),
        "first_come": ("many_messages or batch", r"test_many_messages_may_be_on_their_way"),
        "one_sided_bytes": ("any_size or batch", r"test_any_size.*"),
    },
    "corners": {
        "writes_into_what_is_gathered": ("test_cell and gather", r".*\[all_gather-\w+\]"),
        "writes_into_what_is_scattered": ("test_cell and scatter and not reduce", r".*\[scatter-\w+\]"),
        "writes_into_what_is_exchanged": ("test_cell and all_to_all or test_shapes", r".*\[all_to_all-\w+\]"),
        "writes_into_what_is_sent": ("any_count and (send or recv or gather)", r".*\[(send|recv)-\d\]"),
        "no_barrier": ("ends_at_its_timeout", r".*\[barrier\]|test_a_receive_ends_at_its_timeout.*"),
        "rounded_sums": ("every_bit_of_a_number", r".*\[float64-SUM-all_reduce\]"),
        "rounded_long_doubles": ("every_bit_of_a_number", r".*\[longdouble-SUM-all_reduce\]"),
        "rounded_complex": ("every_bit_of_a_number", r".*\[complex128-PRODUCT-all_reduce\]"),
        "rounded_minimum": ("every_bit_of_a_number", r".*\[float64-MIN-all_reduce\]"),
        "infinities_that_vanish": ("sum_of_negative", r".*\[float32-all_reduce\]"),
        "the_largest_by_size": ("nan_wins and MAX", r".*\[complex64-MAX-all_reduce\]"),
        "uneven_ends": ("test_uneven", r"test_.*"),
        "clears_the_rest": ("shorter or batch", r"test_a_shorter.*"),
        "bytes_of_no_other": ("test_message_dtypes", r"test_bytes.*"),
        "dtypes_by_their_size": ("test_message_dtypes", r"test_(another_dtype|so_it_is).*"),
        "ends_in_wait_alone": ("buffer_is_free or batch", r"test_a_message_reports.*"),
        "result_of_nothing": ("ended_well or every_collective", r"test_a_work_that_has_ended_well"),
        "ends_once": ("ended_well or every_collective", r"test_a_work_that_has_ended_well"),
        "every_hundredth": ("many_messages or a_later_tag", r"test_(many_messages|a_later_tag).*"),
        "gauges_that_fail": ("test_declaration", r"test_what_it_tells_commands.*"),
        "gauges_that_shrink": ("test_declaration", r"test_what_it_tells_commands.*"),
    },
    "works": {
        "reports_early": ("reports_its_end and is_completed", r".*\[is_completed-\w+\]"),
        "calls_back_early": ("reports_its_end and callback", r".*\[callback-\w+\]"),
        "holds_a_lock": ("callback", r"test_a_callback_may_(send|wait_for_messages).*"),
        "waits_as_it_is_issued": ("does_not_wait and all_reduce or generous", r"test_an_asynchronous_call_does_not.*"),
        "waits_with_much": ("does_not_wait and (broadcast or barrier)", r".*\[broadcast\]"),
        "no_truth": ("ended_well or every_collective", r"test_a_work_that_has_ended_well"),
        "only_its_own_time": ("ends_at_its_timeout and barrier or time_out_of_a_group or very_long", r"test_.*time.*"),
        "groups_own_time": ("ends_at_its_timeout and broadcast or generous", r"test_a_collective_without.*"),
        "any_root": ("two_ranks_that_disagree", r".*\[root\]"),
        "any_reduce_op": ("two_ranks_that_disagree", r".*\[reduce op\]"),
        "any_order": (
            "two_ranks_that_disagree or index_says and all_reduce",
            r"test_elements_go_where.*\[\w+-(different|one .*)-all_reduce\]",
        ),
        "dead_after_a_mismatch": ("odd_rank or generous", r"test_the_odd_rank.*"),
        "blames_the_next": ("odd_rank or two_ranks_that_disagree", r"test_the_odd_rank.*"),
        "lets_long_ones_lag": ("order_they_were or issued_before", r"test_what_was_issued_before.*"),
        "result_of_another": ("order_they_were or coalesced_calls", r"test_operations_run_in_the_order.*"),
    },
    "ends": {
        "aborts_once": ("test_abort", r"test_a_group_may_be_aborted_more.*"),
        "aborts_slowly": ("a_blocked_receive or a_blocked_collective or generous", r"test_a_blocked.*"),
        "aborts_everything": ("test_abort", r"test_aborting_one_group.*"),
        "loses_small_ones": ("small_messages or very_long", r"test_small_messages.*"),
        "says_no_good_bye": ("left_alone or that_leaves or small_messages", r"test_a_receive_that_waits.*"),
        "one_life": ("many_times or small_messages", r"test_a_world_may_be_made.*"),
        "keeps_its_first_place": ("leave_and_come_back or merge_and_part", r"test_members_leave_and_come_back"),
        "closes_the_rest": ("destroyed or split or keep_their_shape", r"test_.*"),
        "phantom_device": ("test_declaration or of_nothing", r"test_a_device.*"),
        "slow_to_say": ("test_declaration", r"test_it_says_soon.*"),
        "condition_that_lies": ("test_cell and gather-float32 or very_long", r".*\[gather-float32\]"),
        "silent_abort": ("a_blocked_receive or pending_works", r"test_a_blocked_receive.*"),
        "waits_for_nobody": ("test_endings", r"test_what_was_sent_before_destroy_arrives.*"),
        "another_error": ("a_blocked_receive or pending_works or generous", r"test_(a_blocked|pending).*"),
        "takes_any_options": ("no_kind_that_it_knows or claim", r"test_options.*"),
        "makes_it_in_its_own_time": ("cannot_be_made or claim", r"test_a_group_that_cannot_be_made.*"),
        "says_native": ("test_cells and (native or broadcast and int8)", r"test_what_the_table_calls_native.*"),
    },
    "alone": {
        "interleaves": ("test_threads", r"test_threads_that_send.*|test_messages_of_several_threads.*"),
        "forgets": ("test_dropped and (messages or batch or broadcast)", r"test_so_may_those_of_.*"),
        "leaks": ("test_memory or many_times", r"test_a_(group_leaves_no_memory|small_call_leaves_nothing)_behind.*"),
        "keeps_errors": ("has_failed_is_not_kept or a_blocked_receive", r"test_a_call_that_has_failed_is_not_kept.*"),
        "byte_order": ("test_dtypes and broadcast", r"test_every_layout.*\[broadcast-[579]\]"),
        "loses_at_destroy": ("test_endings", r"test_(what_was_sent_before|so_it_is_when|small_messages).*"),
        "blind": ("test_message_dtypes", r"test_another_dtype.*|test_so_it_is_from_anyone"),
        "one_world": ("test_outside", r"test_several_such_groups.*"),
        "ends_well": ("test_noting", r"test_a_collective_(that_not_all_ranks_make|whose_time_is_up).*"),
        "small_window": ("any_size or later_tag and (4-1040000 or 2000-1)", r"test_a_later_tag.*"),
    },
    "processes": {
        "no_notice_of_death": ("test_death and told or very_long", r"test_the_survivors.*"),
        "loses_what_had_come": ("takes_nothing_from or any_source", r"test_a_death_that_a_backend_acts_on.*"),
        "ends_the_living": ("takes_nothing_from or any_source", r"test_a_death_that_a_backend_acts_on.*"),
        "deaf_after_a_death": ("takes_nothing_from or any_source", r"test_a_death_that_a_backend_acts_on.*"),
        "leaves_its_thread": ("cannot_be_made or any_source", r"test_a_group_that_cannot_be_made.*"),
        "leaves_its_socket": ("cannot_be_made or any_source", r"test_a_group_that_cannot_be_made.*"),
        "keeps_files": ("nothing_is_left or very_long", r"test_nothing_is_left.*"),
        "keeps_descriptors": ("nothing_is_left or very_long", r"test_nothing_is_left.*"),
        "keeps_threads": ("nothing_is_left or very_long", r"test_nothing_is_left.*"),
    },
}


class Outcomes:
    """Notes which tests have passed and failed."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.rpartition("::")[2]
        if report.failed:
            self.failed.add(name)
        elif report.passed and report.when == "call":
            self.passed.add(name)


def try_bug(kind: str, name: str) -> dict[str, object]:
    """Run the tests about one bug, and return which have passed and failed."""
    import rankwise_testing

    settings = Path(rankwise_testing.__file__).parent / "suite" / "pytest.ini"
    outcomes = Outcomes()
    place = name if kind == "alone" else f"{kind}:{name}"
    backend = ["--backend", name, "--plugin-module", place, "--patience", "20"]
    quiet = ["-q", "--tb=line", "-p", "no:cacheprovider"]
    suite = ["-c", str(settings), "-p", "rankwise_testing.suite.plugin", "--pyargs", "rankwise_testing.suite"]
    status = pytest.main([*suite, *quiet, *backend, "-k", BUGS[kind][name][0]], [outcomes])
    assert status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), status
    return {"bug": name, "passed": sorted(outcomes.passed), "failed": sorted(outcomes.failed)}


def try_all(kind: str, only: Collection[str] = ()) -> list[dict[str, object]]:
    """Try the bugs of a kind in processes of their own: a few at once, as most of a bug's cost is waiting for it."""
    paths = [str(LIARS), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths).rstrip(os.pathsep)}

    def try_some(names: list[str]) -> list[dict[str, object]]:
        command = [sys.executable, str(HERE / "bugs.py"), kind, *names]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"bug"')]
        assert len(lines) == len(names), done.stdout[-3000:] + done.stderr[-3000:]
        return [json.loads(line) for line in lines]

    names = [name for name in BUGS[kind] if not only or name in only]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tried = pool.map(try_some, filter(None, (names[n::AT_ONCE] for n in range(AT_ONCE))))
        outcomes = {str(outcome["bug"]): outcome for some in tried for outcome in some}
    return [outcomes[name] for name in names]


def caught_by(kind: str, outcome: dict) -> list[str]:
    """Return the tests that have caught a bug."""
    return [test for test in outcome["failed"] if re.fullmatch(BUGS[kind][outcome["bug"]][1], test)]


def description(kind: str, name: str) -> str:
    """Return what is wrong, as the bug's own docstring says it."""
    sys.path.insert(0, str(LIARS)) if str(LIARS) not in sys.path else None
    found = importlib.import_module(name) if kind == "alone" else getattr(importlib.import_module(kind), name)
    return " ".join((found.__doc__ or "").split())


def write_table(page: Path) -> None:
    """Try all bugs, and write what has caught each into a page."""
    rows = ["| bug | what is wrong | caught by |", "|---|---|---|"]
    caught = 0
    for kind in BUGS:
        for outcome in try_all(kind):
            name = str(outcome["bug"])
            tests = sorted({test.partition("[")[0] for test in caught_by(kind, outcome)})
            caught += bool(tests)
            rows.append(f"| `{name}` | {description(kind, name)} | {', '.join(f'`{t}`' for t in tests) or 'nothing'} |")
    count = sum(map(len, BUGS.values()))
    head, _, _ = page.read_text(encoding="utf-8").partition(MARK)
    page.write_text(f"{head}{MARK}\n\n{caught} of {count} are caught.\n\n" + "\n".join(rows) + "\n", encoding="utf-8")


def try_again(names: Collection[str], times: int) -> int:
    """Try some bugs several times, print how often each was caught, and return how many were not caught each time."""
    missed = 0
    for kind in BUGS:
        caught = {name: 0 for name in BUGS[kind] if name in names}
        for _ in range(times if caught else 0):
            for outcome in try_all(kind, caught):
                caught[str(outcome["bug"])] += bool(caught_by(kind, outcome))
        for name, count in caught.items():
            print(f"{name}: caught in {count} of {times}", flush=True)
            missed += count < times
    return missed


def drawn(count: int, seed: int) -> list[str]:
    """Return the names of some bugs."""
    return random.Random(seed).sample([name for names in BUGS.values() for name in names], count)


#: What stands before the table in the page; what follows is generated.
MARK = "<!-- generated by: python tests/conformance/bugs.py --write -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="NAME", help="a kind, and perhaps some of its bugs; or bugs")
    parser.add_argument("--write", action="store_true", help="try all, and write the table of the page")
    parser.add_argument("--times", type=int, metavar="N", help="try them so often")
    parser.add_argument("--draw", type=int, metavar="N", help="try so many that are drawn")
    parser.add_argument("--seed", type=int, default=0, help="what is drawn")
    options = parser.parse_args()
    if options.write:
        write_table(HERE.parents[1] / "docs" / "planted-bugs.md")
    elif options.times:
        names = options.words or drawn(options.draw, options.seed)
        sys.exit(bool(try_again(names, options.times)))
    else:
        kind, *names = options.words
        for wanted in names or BUGS[kind]:
            print(json.dumps(try_bug(kind, wanted)), flush=True)
        os._exit(0)  # whatever the bugs have left running


if __name__ == "__main__":
    main()
