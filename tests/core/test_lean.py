"""Tuples with names that are made quickly are those of `typing`; protocols are plain classes."""

from __future__ import annotations

import pickle
import typing

import pytest

from rankwise.basics import lean


class Quick(lean.NamedTuple):
    """One of ours."""

    name: str
    count: int = 3
    unit: str | None = None

    @property
    def twice(self) -> int:
        """A property."""
        return 2 * self.count

    @classmethod
    def of(cls, name: str) -> Quick:
        """A class method."""
        return cls(name)


class Usual(typing.NamedTuple):
    """One of ours."""

    name: str
    count: int = 3
    unit: str | None = None


class Shape(lean.Protocol):
    """What has sides."""

    def sides(self) -> int: ...


def test_a_tuple_is_as_that_of_typing() -> None:
    quick, usual = Quick("a", unit="s"), Usual("a", unit="s")
    assert quick == usual == ("a", 3, "s")
    assert repr(quick).partition("(")[2] == repr(usual).partition("(")[2]
    for what in ("_fields", "_field_defaults", "__doc__", "__module__", "__match_args__"):
        assert getattr(Quick, what) == getattr(Usual, what)
    assert typing.get_type_hints(Quick) == typing.get_type_hints(Usual)
    assert quick._replace(count=4)._asdict() == {"name": "a", "count": 4, "unit": "s"}
    assert pickle.loads(pickle.dumps(quick)) == quick


def test_its_methods_are_there() -> None:
    assert Quick("a").twice == 6
    assert type(Quick.of("b")) is Quick


def test_it_cannot_be_changed_or_made_without_its_fields() -> None:
    with pytest.raises(AttributeError):
        Quick("a").count = 4  # type: ignore[misc]
    with pytest.raises(TypeError, match="name"):
        Quick()  # type: ignore[call-arg]


def test_a_protocol_is_a_plain_class() -> None:
    assert type(Shape) is type
