"""What a sender counts as under way is what its receiver has not given credit for, to the byte."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from rankwise.errors import ProtocolError
from rankwise_gloo_tcp.protocol.flow import MESSAGE_NBYTES, WINDOW_NBYTES, Ledger, Window


def begin(window: Window, nbytes: int, claims: bool) -> bool:
    """Send a message with its payload if it fits, in one of the two ways of counting it."""
    if claims:
        return window.claim(nbytes)
    fits = window.fits(nbytes)
    if fits:
        window.spend(nbytes)
    return fits


@pytest.mark.parametrize("claims", [0.0, 0.5, 1.0])
def test_credit_is_for_just_what_is_under_way(claims: float) -> None:
    """Messages are sent in both ways, forgotten, kept and taken in any order, until nothing is left."""
    random, window, ledger = Random(int(claims * 10)), Window(), Ledger()
    on_the_way: deque[int] = deque()
    kept: list[int] = []
    given = offered = 0
    for turn in range(20_000):
        nbytes = random.choice([0, 1, 100, 100_000, WINDOW_NBYTES // 2 - MESSAGE_NBYTES])
        step, credit = random.random() if turn < 19_000 else 1.0, 0
        if step < 0.55:
            if not begin(window, nbytes, random.random() < claims):
                assert window.unconfirmed + nbytes + MESSAGE_NBYTES > WINDOW_NBYTES
                offered += 1
            elif random.random() < 0.1:
                window.forget(nbytes)
            else:
                on_the_way.append(nbytes)
        elif on_the_way and random.random() < 0.5:
            credit = ledger.take(on_the_way.popleft())
        elif on_the_way:
            kept.append(on_the_way.popleft())
            ledger.keep(kept[-1])
        elif kept:
            credit = ledger.release(kept.pop(random.randrange(len(kept))))
        window.credit(credit)
        given += credit
        assert 0 <= window.unconfirmed <= WINDOW_NBYTES
    assert offered
    assert given > WINDOW_NBYTES
    assert not on_the_way
    assert not kept
    window.credit(ledger._due)
    assert window.unconfirmed == 0
    with pytest.raises(ProtocolError):
        window.credit(1)
