"""Inputs that lie in memory which the same call writes to: the results are those of inputs that lie elsewhere."""

import itertools
import random
from contextlib import nullcontext

import numpy as np
import pytest
from tests.threads import on_ranks, run_local

import rankwise as dist
from rankwise.calls import check
from rankwise.calls.check import aside, parts_aside
from rankwise.groups.world import current

SIZES = [2, 3, 5]
MINE = [-1, 0, 1]
everywhere = pytest.mark.parametrize(("size", "count", "shift"), [*itertools.product(SIZES, [1, 3, 5000], MINE)])


def place(size, count, shift):
    """Return zeros for `size` parts, and this rank's input: in its own slot or a neighbour's, or between two."""
    flat = np.zeros(size * count)
    begin = (dist.get_rank() + shift) % size * count
    begin = min(begin + count // 2, flat.size - count)
    array = flat[begin : begin + count]
    array[:] = dist.get_rank() + 1
    return flat, array


def wanted(size, count):
    return np.repeat(np.arange(1.0, size + 1), count)


@everywhere
def test_what_is_gathered_may_lie_anywhere_in_the_output(size, count, shift):
    def program():
        found = []
        for op in (dist.all_gather, dist.all_gather_into_tensor, dist.gather):
            for apart in (False, True) if op is dist.all_gather else (False,):
                flat, array = place(size, count, shift)
                rows = list(flat.reshape(size, count))
                if op is dist.all_gather:
                    op([row.view() for row in rows] if apart else rows, array)
                elif op is dist.gather:
                    op(array, rows if dist.get_rank() == 1 else None, dst=1)
                else:
                    op(flat, array)
                if op is not dist.gather or dist.get_rank() == 1:
                    found.append(flat)
        return found

    for found in run_local(size, program):
        assert len(found) >= 3
        for flat in found:
            np.testing.assert_array_equal(flat, wanted(size, count))


@everywhere
@pytest.mark.parametrize("single", [False, True])
def test_a_reduced_part_may_be_written_anywhere_into_the_input(size, count, shift, single):
    def program():
        flat, out = place(size, count, shift)
        flat[:] = np.arange(flat.size)
        if single:
            dist.reduce_scatter_tensor(out, flat)
        else:
            dist.reduce_scatter(out, list(flat.reshape(size, count)))
        return out

    for rank, out in enumerate(run_local(size, program)):
        np.testing.assert_array_equal(out, size * np.arange(rank * count, (rank + 1) * count))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shift", MINE)
def test_the_root_of_a_scatter_may_get_its_part_in_the_place_of_another(size, shift):
    def program():
        rows = list(np.arange(size * 4.0).reshape(size, 4)) if dist.get_rank() == 1 else None
        out = rows[(1 + shift) % size] if rows else np.zeros(4)
        dist.scatter(out, rows, src=1)
        return out

    for rank, out in enumerate(run_local(size, program)):
        np.testing.assert_array_equal(out, np.arange(rank * 4.0, rank * 4.0 + 4))


#: How to get so many float64 whose memory belongs to an array, or to something else.
MEMORY = {
    "array": np.zeros,
    "bytearray": lambda count: np.frombuffer(bytearray(8 * count)),
    "memoryview": lambda count: np.asarray(memoryview(np.zeros(count))),
}


@pytest.mark.parametrize("memory", MEMORY.values(), ids=MEMORY)
def test_only_what_overlaps_is_copied(memory):
    flat = memory(12)
    rows, other = list(flat.reshape(3, 4)), memory(4)
    assert aside(rows[1], rows, rows[1]) is rows[1]
    assert aside(flat[4:8], [flat], rows[1]).base is rows[1].base
    assert aside(other, rows, rows[1]) is other
    for overlapping in (flat[3:7], flat[8:12], rows[0]):
        copy = aside(overlapping, rows, rows[1])
        assert copy is not overlapping
        assert not np.may_share_memory(copy, flat)
    parts = parts_aside(rows, flat[5:6])
    assert [part is row for part, row in zip(parts, rows, strict=True)] == [True, False, True]
    assert all(part is row for part, row in zip(parts_aside(rows, other), rows, strict=True))


def test_memory_that_is_shared_behind_two_owners_is_seen():
    flat = np.zeros(8)
    behind = np.asarray(memoryview(flat))
    assert not np.may_share_memory(aside(flat, [behind]), flat)
    assert not np.may_share_memory(aside(behind[:4], [flat]), flat)


@on_ranks(1)
def test_what_is_written_may_lie_in_nothing_else_of_the_call():
    group, chance = current().default, random.Random(7)
    told = {True: 0, False: 0}
    for _ in range(3000):
        count = chance.randrange(1, 9)
        flat = np.zeros(5 * count)
        arrays = [flat[begin:][: chance.randrange(4)] for begin in chance.choices(range(flat.size), k=count)]
        cut = chance.randrange(count + 1)
        written, read = arrays[:cut], arrays[cut:]
        pairs = [*itertools.combinations(written, 2), *itertools.product(written, read)]
        overlap = any(np.shares_memory(*pair) for pair in pairs)
        told[overlap] += 1
        said = "output_tensor_list shares memory with another array of the call"
        with pytest.raises(ValueError, match=said) if overlap else nullcontext():
            check.apart(group, "all_to_all", "output_tensor_list", written, read)
    assert min(told.values()) > 500


@on_ranks(2)
def test_copies_of_structures_keep_what_lies_between_the_fields():
    dtype = np.dtype([("x", "i1"), ("y", ">f8")], align=True)
    flat = np.zeros(6, dtype)
    flat.view(np.uint8)[:] = np.arange(flat.nbytes)
    assert aside(flat[1:3], [flat]).tobytes() == flat[1:3].tobytes()

    array = np.zeros((3, 4), dtype)
    array.view(np.uint8)[...] = np.arange(array.nbytes, dtype=np.uint8).reshape(3, -1)
    got = [np.zeros((3, 2), dtype) for _ in range(2)]
    dist.all_gather(got, array[:, 1:3])  # not contiguous
    for part in got:
        assert part.tobytes() == b"".join(row[1:3].tobytes() for row in array)
