"""What a rank writes of the trouble of a meeting, and what the others make of it: whatever stands there, our error."""

from __future__ import annotations

import json

import pytest

from rankwise import errors
from rankwise.groups.handshake import told_by, verdict_of
from rankwise.store.operations import FINE


@pytest.mark.parametrize(
    "error",
    [
        errors.RendezvousError("the ranks disagree"),
        errors.DistTimeoutError("rank 3 did not come"),
        errors.GroupAbortedError("it was interrupted"),
        errors.PeerDiedError(3, "far", "its process ended"),
        errors.PeerUnreachableError(3, "far", "nothing comes"),
        errors.UnsupportedOperationError("it cannot"),
    ],
)
def test_an_error_is_told_as_it_is(error: errors.DistError) -> None:
    told = told_by(verdict_of(error))
    assert type(told) is type(error)
    assert told.args == error.args
    assert str(told) == str(error)


def test_a_backends_own_error_is_told_as_what_it_is_a_kind_of() -> None:
    class OwnError(errors.DistBackendError):
        pass

    told = told_by(verdict_of(OwnError("no device")))
    assert type(told) is errors.DistBackendError
    assert str(told) == "no device"


@pytest.mark.parametrize("verdict", ["", FINE.decode()])
def test_where_all_is_well_nothing_is_told(verdict: str) -> None:
    assert told_by(verdict) is None


@pytest.mark.parametrize(
    "verdict",
    [
        "rank 3 did not come",
        "{}",
        "[]",
        "3",
        "null",
        "[" * 100_000,
        json.dumps(["SystemExit", 1]),
        json.dumps(["__builtins__"]),
        json.dumps(["__doc__"]),
        json.dumps(["annotations"]),
        json.dumps([["RendezvousError"], "text"]),
        json.dumps([3, "text"]),
        json.dumps(["PeerDiedError"]),
        json.dumps(["PeerDiedError", 1, 2, 3, 4, 5, 6]),
        json.dumps({"RendezvousError": "text"}),
    ],
)
def test_nonsense_is_told_as_an_error_of_the_meeting(verdict: str) -> None:
    told = told_by(verdict)
    assert isinstance(told, errors.DistError)
    assert len(str(told)) < 400
