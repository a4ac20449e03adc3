"""How public objects show themselves: by `repr`, in a notebook, and once they were copied or pickled."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest
from tests.threads import run_local

import rankwise as dist
import rankwise.backends
import rankwise_local
import rankwise_testing
import rankwise_watch
from rankwise.backends import Deadline, IssueOrder, Mailbox
from rankwise.basics.rich_display import facts, table
from rankwise_local import local_world

COPIES = {
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
    "pickled": lambda value: pickle.loads(pickle.dumps(value)),
}


def shown():
    """Return what one rank's objects say of themselves, by `repr` and in HTML."""
    array = np.full(2, dist.get_rank() + 1.0)
    work = dist.all_reduce(array, async_op=True)
    work.wait()
    world = dist.group.WORLD
    objects = {"group": world, "work": work, "stats": dist.stats(), "communicator": world.communicators()[0]}
    return {name: (repr(one), getattr(one, "_repr_html_", str)()) for name, one in objects.items()}


def test_a_group_a_work_and_figures_say_what_they_are():
    _, told = run_local(2, shown, timeout=30)
    assert told["group"][0].startswith("<ProcessGroup 'default': rank 1 of 2")
    assert "<tr><th>rank</th><td>1</td></tr>" in told["group"][1]
    assert "all_reduce" in told["work"][0]
    assert "<td>done</td>" in told["work"][1]
    assert "<tr><td>all_reduce</td><td>1</td><td>16</td>" in told["stats"][1]
    assert re.fullmatch(r"<\w+ of group '.+': rank 1 of 2>", told["communicator"][0])


def test_an_availability_says_yes_or_no_and_why():
    assert "<td>yes</td>" in dist.Availability(True)._repr_html_()
    no = dist.Availability(False, "no <driver>", "install it")._repr_html_()
    assert "<td>no</td>" in no
    assert "no &lt;driver&gt;" in no
    assert "install it" in no


def test_what_is_shown_is_escaped():
    for html in (facts("<t>", [("<n>", "<v>")]), table("<t>", ["<h>"], [["<v>"]])):
        assert not re.findall(r"<[tnvh]>", html)


@pytest.mark.parametrize("way", COPIES)
def test_a_capability_table_that_was(way):
    whole = dist.capabilities()
    same = COPIES[way](whole)
    assert same == whole
    assert hash(same) == hash(whole)
    assert str(same) == str(whole)
    assert same.supports("all_reduce", "cpu", "float32")
    part = whole.filter(op="all_reduce")
    assert COPIES[way](part) == part != whole


def test_tables_are_compared_by_what_they_show():
    assert dist.capabilities("gloo") == dist.capabilities("gloo")
    assert dist.capabilities("gloo") != dist.capabilities("mpi")
    assert dist.capabilities("gloo") != "gloo"


def public_classes():
    """Return the classes whose objects a program may come to see: no protocols, and no name of torch's."""
    for module in (dist, dist.backends, rankwise_local, rankwise_testing, rankwise_watch):
        for name in module.__all__:
            one = getattr(module, name)
            is_ours = isinstance(one, type) and one.__module__.startswith("rankwise")
            if is_ours and not getattr(one, "_is_protocol", False) and one is not dist.GroupMember:
                yield one


@pytest.mark.parametrize("one", sorted(set(public_classes()), key=lambda one: one.__qualname__))
def test_a_public_class_has_a_repr_of_its_own(one):
    owner = next(kind for kind in one.__mro__ if "__repr__" in vars(kind))
    assert owner is not object


def test_what_tests_and_authors_hold_says_what_it_is():
    assert re.fullmatch(r"<Deadline: [0-9.]+ s left of 30>", repr(Deadline(30)))
    assert repr(IssueOrder("g")) == "<IssueOrder of group 'g': 0 waiting>"
    box = Mailbox()
    box.receive(np.zeros(1), 0, 7)
    box.deliver(1, 7, b"12345678")
    assert repr(box) == "<Mailbox: 1 messages and 1 receives wait>"
    with local_world(3) as ranks:
        assert repr(ranks) == "<LocalWorld: 3 ranks as threads, backend local>"
    with rankwise_testing.RankPool(2) as pool:
        assert repr(pool) == "<RankPool: 2 ranks as processes, not started>"


def test_no_public_object_is_shown_by_its_address():
    store = dist.HashStore()
    objects = [
        *(dist.capabilities("gloo")["gloo"], dist.Backend("gloo"), dist.ReduceOp.SUM, store),
        *(dist.PrefixStore("a", store), dist.BackendConfig("gloo"), dist.availability("gloo")),
        *(dist.P2POp(dist.isend, np.ones(1), 0) for _ in range(dist.is_initialized())),
    ]
    for one in objects:
        assert not re.search(r" at 0x[0-9a-f]+", repr(one)), repr(one)
        assert len(repr(one)) < 200
