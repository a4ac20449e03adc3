"""Bugs that were planted into an honest backend: each is caught by the tests that are about it, and by no others."""

import re
import time

import pytest

#: For each: which tests are run, and which of them fail; all others pass.
PLANTED = {
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
    "interleaves": ("test_threads", r"test_threads_that_send.*|test_messages_of_several_threads.*"),
    "leaks": ("test_memory or many_times", r"test_a_group_leaves_no_memory_behind"),
    "silent_abort": ("a_blocked_receive or pending_works", r"test_a_blocked_receive.*"),
    "byte_order": ("test_dtypes and broadcast", r"test_every_layout.*\[broadcast-[579]\]"),
    "loses_at_destroy": ("test_endings", r"test_what_was_sent_before_destroy.*|test_so_it_is_when_one_group.*"),
    "waits_for_nobody": ("test_endings", r"test_what_was_sent_before_destroy_arrives.*"),
    "blind": ("test_message_dtypes", r"test_another_dtype.*|test_so_it_is_from_anyone"),
    "one_world": ("test_outside", r"test_several_such_groups.*"),
    "ends_well": ("test_noting", r"test_a_collective_that_not_all_ranks_make.*\[False\]"),
    "small_window": ("any_size or later_tag and (4-1040000 or 2000-1)", r"test_a_later_tag.*\[(4-1040000|2000-1)\]"),
}
#: Of these some may pass: who receives at once may be faster than the loss.
MAY_PASS = {
    "loses_at_destroy": r".*\[at once\]|test_so_it_is_when_one_group.*",
    "waits_for_nobody": r".*\[at once\]",
}


@pytest.mark.parametrize("name", list(PLANTED))
def test_a_planted_bug_is_caught_by_the_tests_about_it(run, name):
    wanted, guilty = PLANTED[name]
    said = run("--backend", name, "--plugin-module", name, "-rA", "--tb=line", "-k", wanted)
    verdicts = re.findall(r"^(PASSED|FAILED|ERROR) [^[\n]*::(test_\w+(?:\[[^]]*\])?)", said.stdout, re.MULTILINE)
    failed = {test for verdict, test in verdicts if verdict != "PASSED"}
    passed = {test for verdict, test in verdicts if verdict == "PASSED"}
    assert failed, f"nothing has caught {name}:\n{said.stdout[-6000:]}{said.stderr[-2000:]}"
    assert passed, f"everything fails on {name}:\n{said.stdout[-6000:]}"
    others = [test for test in failed if not re.fullmatch(guilty, test)]
    assert not others, f"these fail too, and are not about it: {others}:\n{said.stdout[-6000:]}"
    certain = [test for test in passed if re.fullmatch(guilty, test) and not re.fullmatch(MAY_PASS.get(name, ""), test)]
    assert not certain, f"these pass: {certain}"


def test_a_backend_that_ignores_its_time_outs_does_not_make_the_kit_stand_still(run):
    begin = time.monotonic()
    arguments = ["--backend", "never_in_time", "--plugin-module", "never_in_time", "--tb=line", "--patience", "1"]
    said = run(*arguments, "-k", "test_timeouts or test_a_message_of_nothing")
    assert time.monotonic() - begin < 60
    assert said.returncode == 1, said.stdout[-4000:]
    assert "5 tests stood still whatever their time-outs were; giving up" in said.stdout + said.stderr
