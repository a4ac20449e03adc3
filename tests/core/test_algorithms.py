"""Every algorithm, proved for every number of ranks and every root, and held to the costs that it states."""

import itertools
import math

import pytest

from rankwise.collective.algorithms import Recv, Send, double_trees, rounds
from rankwise.collective.algorithms.table import CHOICES, derived_algorithm, rooted
from rankwise_testing.proof import ProofError, prove
from rankwise_tools.explaining.algorithms import ALGORITHMS, all_gather_open_bruck, all_gather_open_ring
from rankwise_tools.explaining.costs import costs

CASES = [(op, name) for op, family in ALGORITHMS.items() for name in family]
SIZES = range(1, 65)


def log2_up(size):
    return math.ceil(math.log2(size))


def once(size):
    return int(size > 1)


def fold_rounds(size):
    return int(math.log2(size)) + 2 * (size & (size - 1) != 0)


#: The most rounds that any rank takes: what the docstrings state.
ROUNDS = {
    **dict.fromkeys([(op, "direct") for op in ("reduce_scatter", "all_gather", "all_to_all")], once),
    **dict.fromkeys([(op, "flat") for op in ("broadcast", "gather", "scatter")], once),
    **dict.fromkeys([(op, "binomial") for op in ("broadcast", "reduce", "gather", "scatter")], log2_up),
    **dict.fromkeys([("reduce_scatter", "pat"), ("all_gather", "bruck"), ("barrier", "dissemination")], log2_up),
    **dict.fromkeys([("reduce_scatter", "ring"), ("all_gather", "ring"), ("all_to_all", "pairwise")], lambda p: p - 1),
    ("all_reduce", "recursive_doubling"): fold_rounds,
    ("all_reduce", "two_shot"): lambda p: 2 * (p > 1),
    ("all_reduce", "pat"): lambda p: 2 * log2_up(p),
    ("all_reduce", "halving_doubling"): lambda p: 2 * int(math.log2(p)) + 2 * (p & (p - 1) != 0),
    ("all_reduce", "ring"): lambda p: 2 * (p - 1),
    ("broadcast", "scatter_ring"): lambda p: log2_up(p) + p - 1,
    ("broadcast", "scatter_bruck"): lambda p: 2 * log2_up(p),
    ("reduce", "pat_gather"): lambda p: 2 * log2_up(p),
    ("reduce", "scatter_gather"): lambda p: (p > 1) + log2_up(p),
}

#: And those that state a bound.
BOUNDS = {
    ("broadcast", "double_trees"): lambda p: 3 * log2_up(p) + 1,
    ("reduce", "double_trees"): lambda p: 3 * log2_up(p) + 1,
    ("all_reduce", "double_trees"): lambda p: 4 * log2_up(p) + 2,
}

PARTS = {
    "equal": lambda size: [8] * size,
    "unequal": lambda size: [5 * i + 1 for i in range(size)],
    "some zero": lambda size: [0 if i % 3 == 0 else 7 for i in range(size)],
    "all zero": lambda size: [0] * size,
}


def without_root(algorithm):
    return lambda rank, size, root: algorithm(rank, size)


#: Algorithms that run one after another. Where the second begins with what the first leaves, and messages of one pair
#: keep their order, the whole is right if its parts are. All roots of all sizes would be p cubed steps, a minute for
#: these two alone: so beyond 16 ranks the parts are proved for every root, and the whole for two.
COMPOSED = {
    ("broadcast", "scatter_ring"): (rounds.scatter_binomial, all_gather_open_ring),
    ("broadcast", "scatter_bruck"): (rounds.scatter_binomial, all_gather_open_bruck),
    ("reduce", "pat_gather"): (without_root(rounds.reduce_scatter_pat), rounds.gather_binomial),
    ("reduce", "scatter_gather"): (without_root(rounds.reduce_scatter_direct), rounds.gather_binomial),
}


def roots(op, name, size):
    if not rooted(op, 0):
        return [0]
    # The root only turns the numbers of the ranks, and so it does beyond where each has been proved.
    if (op, name) in COMPOSED or name == "double_trees":
        return range(size) if size <= 16 else {0, size - 1}
    return range(size) if size <= 32 else {0, 1, size // 2, size - 1}


@pytest.mark.parametrize(("op", "name"), CASES)
def test_is_proved_for_every_size_and_root(op, name):
    for size in SIZES:
        for root in roots(op, name, size):
            prove(op, ALGORITHMS[op][name], size, root)


@pytest.mark.parametrize(("op", "name"), COMPOSED)
def test_is_composed_of_what_is_proved(op, name):
    for size in (2, 3, 31, 32):
        for rank, root in itertools.product(range(size), repeat=2):
            parts = [part(rank, size, root) for part in COMPOSED[op, name]]
            assert list(ALGORITHMS[op][name](rank, size, root)) == list(itertools.chain(*parts))


@pytest.mark.parametrize(
    ("closed", "opened"),
    [(rounds.all_gather_ring, all_gather_open_ring), (rounds.all_gather_bruck, all_gather_open_bruck)],
    ids=["ring", "bruck"],
)
@pytest.mark.parametrize("size", [2, 3, 31, 32])
def test_an_open_all_gather_is_one_without_what_goes_to_the_rank_that_has_all(size, closed, opened):
    for rank, begin in itertools.product(range(size), repeat=2):
        whole = [
            tuple(step for step in steps if (rank if isinstance(step, Recv) else step.to) != begin)
            for steps in closed(rank, size)
        ]
        assert list(opened(rank, size, begin)) == whole


@pytest.mark.parametrize("size", range(2, 65))
def test_who_has_children_in_one_of_two_trees_has_none_in_the_other(size):
    for rank in range(1, size):
        steps = itertools.chain(*double_trees.broadcast(rank, size, 0))
        assert len({step.to for step in steps if isinstance(step, Send)}) <= 2


@pytest.mark.parametrize(("op", "name"), CASES)
def test_takes_the_rounds_that_it_states(op, name):
    for size in SIZES:
        most = max(cost.rounds for cost in costs(op, name, size, [1] * size))
        if (op, name) in BOUNDS:
            assert most <= BOUNDS[op, name](size), size
        else:
            assert most == ROUNDS[op, name](size), size


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 64])
def test_sends_the_bytes_that_it_states(size, parts):
    sizes = PARTS[parts](size)
    total = sum(sizes)

    def sent(op, name, root=0):
        return [cost.nbytes for cost in costs(op, name, size, sizes, root)]

    less_own = [total - own for own in sizes]
    for op, names in (("reduce_scatter", ("direct", "ring", "pat")), ("all_to_all", ("direct", "pairwise"))):
        assert [sent(op, name) for name in names] == [less_own] * len(names)
    assert sent("all_gather", "direct") == [(size - 1) * own for own in sizes]
    assert sent("all_gather", "ring") == [total - sizes[(rank + 1) % size] for rank in range(size)]
    assert sum(sent("all_gather", "bruck")) == (size - 1) * total
    for name in ("ring", "two_shot", "pat", "double_trees"):
        assert sum(sent("all_reduce", name)) == 2 * (size - 1) * total
    for root in {0, size // 2, size - 1}:
        for op in ("broadcast", "reduce"):
            assert sum(sent(op, "double_trees", root)) == (size - 1) * total
            halves = sum(sizes[: size // 2]), sum(sizes[size // 2 :])
            assert max(sent(op, "double_trees", root)) <= max(total, 2 * max(halves))
        for op, name in (("broadcast", "flat"), ("broadcast", "binomial"), ("reduce", "binomial")):
            assert sum(sent(op, name, root)) == (size - 1) * total
        assert sent("broadcast", "binomial", root)[root] == log2_up(size) * total
        assert sum(sent("gather", "flat", root)) == total - sizes[root]
        assert sent("scatter", "flat", root)[root] == total - sizes[root]
        assert sent("scatter", "binomial", root)[root] == total - sizes[root]
    if size & (size - 1) == 0:
        assert sum(sent("all_reduce", "halving_doubling")) == 2 * (size - 1) * total
        assert max(sent("all_reduce", "recursive_doubling")) == int(math.log2(size)) * total


def test_every_choice_names_an_algorithm_and_every_table_ends_without_a_bound():
    for op, choices in CHOICES.items():
        assert all(choice.name in ALGORITHMS[op] for choice in choices)
        assert derived_algorithm(op, 1 << 60, 1 << 20) == choices[-1].name
    assert derived_algorithm("all_reduce", 8, 4) == "recursive_doubling"
    assert derived_algorithm("all_reduce", 64 << 20, 4) == "ring"


def lost(rank, size):
    """An all_gather that forgets the last block."""
    others = [r for r in range(size) if r != rank]
    yield (*(Send(o, range(rank, rank + 1)) for o in others if rank), *(Recv(o, range(o, o + 1)) for o in others if o))


def doubled(rank, size):
    """An all_reduce that adds the partner's data twice."""
    for _ in range(2):
        yield Send(1 - rank, range(2)), Recv(1 - rank, range(2), combine=True)


def stuck(rank, size):
    """Two ranks that both receive first."""
    yield (Recv(1 - rank, range(2)),)
    yield (Send(1 - rank, range(2)),)


def chatty(rank, size):
    """A broadcast in which the root sends once too often."""
    if rank == 0:
        yield (Send(1, range(2)), Send(1, range(2)))
    else:
        yield (Recv(0, range(2)),)


def overwriting(rank, size):
    """An exchange that overwrites what it is sending."""
    yield Send(1 - rank, range(2)), Recv(1 - rank, range(2))


def echoing(rank, size, root):
    """A broadcast in which the root gets its own data back."""
    if rank == root:
        yield (Send(1 - root, range(2)),)
        yield (Recv(1 - root, range(2)),)
    else:
        yield (Recv(root, range(2)),)
        yield (Send(root, range(2)),)


@pytest.mark.parametrize(
    ("op", "wrong", "complaint"),
    [
        ("all_gather", lost, "holds 0"),
        ("all_reduce", doubled, "twice"),
        ("all_reduce", stuck, "stands still"),
        ("broadcast", lambda rank, size, root: chatty(rank, size), "nobody receives"),
        ("all_reduce", overwriting, "in one round"),
        ("broadcast", echoing, "rank 0 receives block 0 into an input"),
    ],
)
def test_the_proof_finds_what_is_wrong(op, wrong, complaint):
    with pytest.raises(ProofError, match=complaint):
        prove(op, wrong, 2)
