"""Some dtypes of an operation may depend on something of their own, such as a library's version."""

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests.threads import run_local

import rankwise as dist
from rankwise.backends import BackendSpec, Capabilities, Condition, Device, Support, Why, native
from rankwise.backends.capability_table import CapabilityTable
from rankwise.backends.registry import registry
from rankwise_local import LocalCommunicator
from rankwise_local.communicator import CAPABILITIES

WHOLE = CAPABILITIES.devices["cpu"]
#: Whether the driver is new enough.
DRIVER = {"new": False}
NEEDS = "needs driver 2.4"
NEWER = Condition(NEEDS, lambda: DRIVER["new"])


def table(condition: Condition = NEWER) -> Capabilities:
    """Return a table in which one dtype of two operations has a condition."""
    limits = {"only_if": {"int16": condition}}
    ops = {**WHOLE.ops, **native("broadcast", **limits), **native("all_reduce", **limits)}
    return Capabilities("choosy", {"cpu": replace(WHOLE, ops=ops)})


@pytest.fixture(autouse=True)
def choosy() -> Iterator[None]:
    DRIVER["new"] = False
    registry.register(BackendSpec("choosy", 1, table(), LocalCommunicator))
    yield
    registry.unregister("choosy")


def questions() -> list[bool]:
    ask = [("broadcast", None), ("all_reduce", "SUM"), ("all_reduce", None)]
    return [dist.supports(op, "cpu", "int16", reduce_op, "choosy") for op, reduce_op in ask]


def test_the_answer_is_that_of_the_condition_whenever_it_is_asked():
    for new in (False, True, False):
        DRIVER["new"] = new
        assert questions() == [new] * 3
        assert dist.supports("all_reduce", "cpu", "int32", "SUM", "choosy")
        assert dist.supports("all_reduce", "cpu", backend="choosy")
    answer = dist.capabilities("choosy").ask("all_reduce", "cpu", "int16", "SUM")["choosy"]
    assert (answer.why, answer.reason) == (Why.CONDITION, f"all_reduce(SUM) of int16: {NEEDS}")


@pytest.mark.parametrize("new", [False, True])
def test_a_call_does_what_the_answer_says(new):
    DRIVER["new"] = new

    def program() -> str:
        array = np.ones(2, "i2")
        try:
            dist.all_reduce(array)
        except dist.UnsupportedOperationError as error:
            return str(error)
        return f"{array[0]}"

    said = run_local(2, program, backend="choosy", timeout=20)
    if new:
        assert said == ["2", "2"]
    else:
        assert said[0] == said[1]
        assert f"does not do all_reduce(SUM) of int16 on cpu: {NEEDS}" in said[0]


def test_one_that_fails_does_not_hold():
    registry.register(BackendSpec("choosy", 1, table(Condition(NEEDS, lambda: 1 // 0)), LocalCommunicator), True)
    assert questions() == [False] * 3
    assert (
        "cannot be asked: ZeroDivisionError"
        in table(Condition(NEEDS, lambda: 1 // 0)).ask("broadcast", "cpu", "int16").reason
    )


def test_it_is_shown_and_is_as_it_was_in_data():
    found = dist.capabilities("choosy")
    assert f"choosy cpu, int16: {NEEDS} (broadcast, all_reduce)" in str(found)
    assert f"choosy cpu, int16: {NEEDS} (broadcast, all_reduce)" in found.to_markdown()
    copies = [pickle.loads(pickle.dumps(found["choosy"]))]
    assert [row["dtypes"].count("int16") for row in found.rows() if row["name"] == "broadcast"] == [0]
    copies.append(Capabilities.from_dict("choosy", json.loads(found.to_json())["choosy"]))
    DRIVER["new"] = True
    for copy in copies:
        assert copy.ask("broadcast", "cpu", "int16") == (False, Why.CONDITION, f"broadcast of int16: {NEEDS}", "", None)
        assert copy.ask("broadcast", "cpu", "int8").how is Support.NATIVE
        assert str(CapabilityTable([copy])) == str(found)
    assert [row["dtypes"].count("int16") for row in found.rows() if row["name"] == "broadcast"] == [1]
    assert table().digest() != Capabilities("choosy", {"cpu": WHOLE}).digest()


@pytest.mark.parametrize(
    ("only_if", "told"),
    [
        ({"int17": NEWER}, r"only_if\['int17'\] is of no dtype; did you mean 'int16'"),
        ({"int16": (NEEDS, bool)}, r"only_if\['int16'\] is a tuple, but must be a Condition"),
        ({"int16": Condition("", bool)}, r"only_if\['int16'\].reason is empty"),
        ({"int16": Condition(NEEDS, 3)}, r"only_if\['int16'\].holds is 3, but must be callable"),  # type: ignore[arg-type]
        (3, "only_if is an int, but must be a mapping"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_field(only_if, told):
    declared = Capabilities("other", {"cpu": Device(native("send", "recv", only_if=only_if))})
    with pytest.raises(ValueError, match=told):
        registry.register(BackendSpec("other", 1, declared, LocalCommunicator))
