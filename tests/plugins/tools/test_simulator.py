"""Virtual time, against what can be worked out by hand."""

import pytest

from rankwise.collective.algorithms import Recv, Send
from rankwise_tools.explaining.algorithms import ALGORITHMS
from rankwise_tools.explaining.costs import Network
from rankwise_tools.explaining.simulator import simulate

ALPHA_S, BETA_S, GAMMA_S = 1e-5, 1e-9, 1e-10
NBYTES = 1 << 20


def took(op, name, size, nbytes=NBYTES, alpha_s=ALPHA_S, beta_s=BETA_S, gamma_s=GAMMA_S, message_s=0.0, root=0):
    network = Network(alpha_s, beta_s, gamma_s, message_s)
    return simulate(op, ALGORITHMS[op][name], [nbytes / size] * size, network, root)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_a_ring_takes_its_messages_and_its_bytes_one_after_the_other(size):
    block = NBYTES / size
    expected = 2 * (size - 1) * (ALPHA_S + BETA_S * block) + (size - 1) * GAMMA_S * block
    assert took("all_reduce", "ring", size) == pytest.approx(expected)


def test_recursive_doubling_takes_the_logarithm():
    assert took("all_reduce", "recursive_doubling", 16) == pytest.approx(4 * (ALPHA_S + (BETA_S + GAMMA_S) * NBYTES))


@pytest.mark.parametrize("op", ["gather", "scatter", "broadcast", "all_to_all", "all_gather"])
def test_messages_to_or_from_one_rank_share_its_link(op):
    """All at once is one latency, but the bytes of the busiest link one after the other."""
    name = "flat" if "flat" in ALGORITHMS[op] else "direct"
    most = 7 * NBYTES if op == "broadcast" else 7 / 8 * NBYTES
    assert took(op, name, 8) == pytest.approx(ALPHA_S + BETA_S * most)


def test_each_message_costs_time_on_the_link_even_if_empty():
    assert took("all_to_all", "direct", 8, nbytes=0) == pytest.approx(ALPHA_S)
    assert took("all_to_all", "direct", 8, nbytes=0, message_s=1e-6) == pytest.approx(ALPHA_S + 7e-6)


def test_a_link_serves_first_who_comes_first():
    """Rank 0 lists the late message first; the early one has long been received when that comes."""

    def late_and_early(rank, size):
        if rank == 0:
            yield Recv(2, range(1)), Recv(1, range(1, 2))
        elif rank == 1:
            yield (Send(0, range(1, 2)), Send(2, range(2, 3)))
        else:
            yield (Recv(1, range(2, 3)),)
            yield (Send(0, range(1)),)

    # Bytes: early 100, the trigger 200, late 50; a second each, and a latency of 1,000.
    assert simulate("all_gather", late_and_early, [50, 100, 200], Network(1000.0, 1.0, 0.0)) == pytest.approx(2350)


def test_a_rank_goes_on_only_when_its_sends_have_left():
    """The root of a tree sends to its children one after the other."""
    hops = took("broadcast", "binomial", 4, alpha_s=0.0)
    assert hops == pytest.approx(2 * BETA_S * NBYTES)


@pytest.mark.parametrize("root", [0, 3])
def test_the_root_makes_no_difference_where_all_links_are_alike(root):
    assert took("reduce", "binomial", 8, root=root) == pytest.approx(3 * (ALPHA_S + (BETA_S + GAMMA_S) * NBYTES))


def test_an_algorithm_that_stands_still_is_an_error():
    def stuck(rank, size):
        yield (Recv(1 - rank, range(2)),)

    with pytest.raises(RuntimeError, match="stands still"):
        simulate("all_reduce", stuck, [1, 1], Network(1.0, 0, 0))


def test_latency_decides_for_small_arrays_and_bandwidth_for_large_ones():
    def best(nbytes):
        names = ("recursive_doubling", "pat", "ring")
        return min(names, key=lambda name: took("all_reduce", name, 32, nbytes))

    assert [best(8), best(1 << 20), best(1 << 30)] == ["recursive_doubling", "pat", "pat"]


@pytest.mark.parametrize(("op", "name"), [("all_reduce", "recursive_doubling"), ("broadcast", "binomial")])
def test_thousands_of_ranks_are_within_reach(op, name):
    assert took(op, name, 4096, nbytes=0, alpha_s=1.0) == pytest.approx(12.0)
