"""The rooms for what ranks send along when they compare their calls."""

from __future__ import annotations

import threading

import pytest

from rankwise_gloo_tcp.collectives import opening

#: For so long the first thread waits for the other, which needs no time.
THREAD_S = 20


def test_two_threads_that_need_the_rooms_first_come_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """One carries a group's first call out while another prepares the second."""
    monkeypatch.setattr(opening, "FastPath", lambda engine: engine)
    made = opening.Opening({}, 0, 3)  # type: ignore[arg-type]
    of_the_other: list[dict[int, memoryview]] = []
    as_bytes = opening.as_bytes

    def while_another_comes(array: object) -> memoryview:
        if not of_the_other:
            of_the_other.append({})
            other = threading.Thread(target=lambda: of_the_other.append(dict(made.rooms())))
            other.start()
            other.join(THREAD_S)
        return as_bytes(array)  # type: ignore[arg-type]

    monkeypatch.setattr(opening, "as_bytes", while_another_comes)
    mine = made.rooms()
    assert sorted(mine) == [1, 2]
    assert all(mine[peer] is of_the_other[1][peer] for peer in mine)
