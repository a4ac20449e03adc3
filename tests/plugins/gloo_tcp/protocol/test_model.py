"""An exhaustive search: every order in which two ranks' sends, receives and frames can interleave, by two rules.

The model keeps of the protocol what decides whether messages meet: a window in units, credit, offers and requests.
Payloads are one step. By the present rule a message for which the window has no room is offered. By the one before it,
it was held back in one line for all tags, and credit came in steps of a quarter of the window. The search finds where
that stands still, and that the present one never does.
"""

from __future__ import annotations

from collections import deque
from itertools import product
from typing import NamedTuple

import pytest

#: What a rank does next: it sends without waiting (tag, size), waits for a message of a tag, or waits for its sends.
Step = tuple[str, int, int]
Program = tuple[Step, ...]


class Rule(NamedTuple):
    """How messages travel."""

    offers: bool
    window: int
    #: How much is taken before credit returns.
    credit_step: int


class Rank(NamedTuple):
    """One rank; what it has of the other's messages stands in the order in which they came."""

    at: int = 0
    unconfirmed: int = 0
    due: int = 0
    held_back: tuple[tuple[int, int], ...] = ()
    offered: tuple[tuple[int, int], ...] = ()
    #: (tag, size, whether the bytes are here).
    arrived: tuple[tuple[int, int, bool], ...] = ()
    #: The tag of an offer that was asked for; the size counts once its payload is here.
    asked: int = -1


World = tuple[Rank, Rank, tuple[Step, ...], tuple[Step, ...]]


def successors(world: World, programs: tuple[Program, Program], rule: Rule) -> list[World]:
    """Return what one step of a rank, or the arrival of one frame, can make of a world."""
    found = []
    for me in (0, 1):
        ranks, links = [world[0], world[1]], [world[2], world[3]]  # links[i]: from i to the other
        if _act(ranks, links, me, programs[me], rule):
            found.append((*ranks, *links))
        ranks, links = [world[0], world[1]], [world[2], world[3]]
        if links[1 - me]:
            frame, links[1 - me] = links[1 - me][0], links[1 - me][1:]
            _take(ranks, links, me, frame, rule)
            found.append((*ranks, *links))
    return found  # type: ignore[return-value]


def _act(ranks: list[Rank], links: list[tuple[Step, ...]], me: int, program: Program, rule: Rule) -> bool:
    rank = ranks[me]
    if rank.at == len(program):
        return False
    what, tag, size = program[rank.at]
    if what == "send":
        ranks[me] = rank._replace(at=rank.at + 1, held_back=(*rank.held_back, (tag, size)))
        _push(ranks, links, me, rule)
        return True
    if what == "finish":
        ranks[me] = rank._replace(at=rank.at + 1)
        return not rank.held_back and not rank.offered
    index = next((i for i, message in enumerate(rank.arrived) if message[0] == tag), -1)
    if index < 0 or rank.asked >= 0:
        return False
    here, (_, size, whole) = rank.arrived, rank.arrived[index]
    rank = rank._replace(arrived=here[:index] + here[index + 1 :])
    if whole:
        ranks[me] = rank._replace(at=rank.at + 1, due=rank.due + size)
        _give_credit(ranks, links, me, rule)
    else:
        ranks[me] = rank._replace(asked=tag)
        links[me] = (*links[me], ("request", tag, size))
    return True


def _take(ranks: list[Rank], links: list[tuple[Step, ...]], me: int, frame: Step, rule: Rule) -> None:
    rank, (what, tag, size) = ranks[me], frame
    if what in ("message", "offer"):
        ranks[me] = rank._replace(arrived=(*rank.arrived, (tag, size, what == "message")))
    elif what == "payload":
        ranks[me] = rank._replace(at=rank.at + 1, asked=-1)
    elif what == "request":
        offered = list(rank.offered)
        offered.remove((tag, size))
        ranks[me] = rank._replace(offered=tuple(offered))
        links[me] = (*links[me], ("payload", tag, size))
    else:
        ranks[me] = rank._replace(unconfirmed=rank.unconfirmed - size)
        _push(ranks, links, me, rule)


def _push(ranks: list[Rank], links: list[tuple[Step, ...]], me: int, rule: Rule) -> None:
    """Send what waits, as far as the rule lets it."""
    while ranks[me].held_back:
        rank, (tag, size) = ranks[me], ranks[me].held_back[0]
        fits = rank.unconfirmed + size <= rule.window
        if not fits and not rule.offers:
            return
        ranks[me] = rank._replace(
            held_back=rank.held_back[1:],
            unconfirmed=rank.unconfirmed + size * fits,
            offered=rank.offered if fits else (*rank.offered, (tag, size)),
        )
        links[me] = (*links[me], ("message" if fits else "offer", tag, size))


def _give_credit(ranks: list[Rank], links: list[tuple[Step, ...]], me: int, rule: Rule) -> None:
    if ranks[me].due >= rule.credit_step:
        links[me] = (*links[me], ("credit", 0, ranks[me].due))
        ranks[me] = ranks[me]._replace(due=0)


def stands_still(programs: tuple[Program, Program], rule: Rule) -> bool:
    """Search all worlds that two programs can lead to; tell whether they do not end in one of them."""
    begin: World = (Rank(), Rank(), (), ())
    seen, waiting = {begin}, deque([begin])
    while waiting:
        world = waiting.popleft()
        for rank in world[:2]:
            assert 0 <= rank.unconfirmed <= rule.window
            assert sum(size for _, size, whole in rank.arrived if whole) <= rule.window
        following = successors(world, programs, rule)
        if not following and any(rank.at < len(program) for rank, program in zip(world[:2], programs, strict=True)):
            return True
        fresh = set(following) - seen
        seen |= fresh
        waiting.extend(fresh)
    return False


def pairs() -> list[tuple[Program, Program]]:
    """Return programs that send three messages, of two tags and up to a window of 4, and receive in any order."""
    found = []
    for sizes, tags in product(product((1, 3, 4), repeat=3), ((0, 0, 0), (0, 0, 1), (0, 1, 0))):
        sends = tuple(("send", tag, size) for tag, size in zip(tags, sizes, strict=True))
        for order in {tags, tags[::-1], tuple(sorted(tags))}:
            receives = tuple(("receive", tag, 0) for tag in order)
            one = (*sends, ("finish", 0, 0)), receives
            both = (*sends, *receives, ("finish", 0, 0)), (*sends[:1], *receives, *sends[1:], ("finish", 0, 0))
            found += [one, both]
    return found


@pytest.mark.parametrize("credit_step", [1, 2, 4])
def test_no_programs_stand_still(credit_step: int) -> None:
    assert not [programs for programs in pairs() if stands_still(programs, Rule(True, 4, credit_step))]


def test_holding_messages_back_stands_still() -> None:
    """Both ways: by the credit that is due and does not come, and by the line that all tags share."""
    old = Rule(False, 4, 2)
    found = [programs for programs in pairs() if stands_still(programs, old)]
    ordered = [p for p in found if [tag for what, tag, _ in p[0] if what == "send"] == [tag for _, tag, _ in p[1]]]
    assert ordered, "credit"
    assert len(found) > len(ordered), "tags"
    assert [p for p in ordered if stands_still(p, old._replace(credit_step=1))] == []
