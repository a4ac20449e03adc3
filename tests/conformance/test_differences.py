"""What the kit says of two arrays that differ: how many elements do, and which is the first."""

import time

import numpy as np
import pytest

from rankwise_testing.suite.arrays import differences, pattern


@pytest.mark.parametrize(
    "dtype", ["?", "u1", ">i2", "f4", "f8", "c16", "g", "G", "S5", "V3", [("a", "i2"), ("b", "f8")]]
)
def test_the_first_of_the_wrong_elements_is_named(dtype):
    array = np.zeros((2, 4), dtype)
    wanted = array.copy()
    assert differences(array, wanted) == ""
    wanted[1, 1:3] = np.ones(2, "u1").view("?") if dtype == "?" else (1, 2) if isinstance(dtype, list) else b"1"
    assert differences(array, wanted).startswith("2 of 8 elements are wrong; element 5 is ")


def test_nan_is_nan_and_nothing_is_nothing():
    assert differences(np.array([np.nan, -0.0]), np.array([np.nan, -0.0])) == ""
    assert differences(np.array([-0.0]), np.array([0.0])) != ""
    assert differences(np.zeros((0, 3)), np.zeros((0, 3))) == ""


def test_a_wrong_byte_in_a_long_array_is_found_in_a_moment():
    wanted = pattern((32 << 20) + 3, 5)
    array = wanted.copy()
    array[-2] ^= 1
    before = time.process_time()
    assert f"1 of {array.size} elements are wrong; element {array.size - 2} is" in differences(array, wanted)
    assert time.process_time() - before < 5  # each element by itself takes a minute
