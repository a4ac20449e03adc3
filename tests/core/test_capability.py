"""The capability table: declared as data, asked, printed, and the one place that refuses."""

import json

import ml_dtypes
import numpy as np
import pytest

import rankwise as dist
from rankwise import ReduceOp
from rankwise.backends.capability import (
    FEATURES,
    OPS,
    REDUCTIONS,
    Capabilities,
    Device,
    conditional,
    derived,
    native,
    no,
    require,
    require_feature,
)
from rankwise.backends.capability_table import CapabilityTable
from rankwise.basics.arrays import DTYPES, dtype_name
from rankwise.testing import local_world

REPRESENTATIVES = {
    "datetime64": "M8[s]",
    "timedelta64": "m8[s]",
    "bytes": "S3",
    "str": "U3",
    "structured": [("a", "i4")],
    "void": "V3",
    **{name: getattr(ml_dtypes, name) for name in DTYPES if name.startswith(("bfloat", "float8"))},
}

TOY = Capabilities(
    "toy",
    {
        "cpu": Device(
            ops={
                **native("send", "recv"),
                **native("all_reduce", reduce_ops={"SUM": frozenset({"float32", "int8"}), "MAX": frozenset({"int8"})}),
                **derived("broadcast", dtypes=frozenset({"float32"})),
                **conditional("gather", reason="needs a full moon", holds=lambda: False),
                **conditional("scatter", reason="needs the sun", holds=lambda: True),
                **no("barrier", reason="it is in a hurry"),
            },
            features={**native("tags"), **no("abort")},
        )
    },
)


@pytest.mark.parametrize("name", DTYPES)
def test_the_declared_reductions_are_those_of_numpy(name):
    dtype = np.dtype(REPRESENTATIVES.get(name, name))
    assert dtype_name(dtype) == name
    defined = {op for op in REDUCTIONS if ReduceOp(op).defined_for(dtype)}
    assert {op for op, dtypes in REDUCTIONS.items() if name in dtypes} == defined


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (("send", "cpu"), True),
        (("send", "cuda"), False),
        (("send", "cpu", np.int16), True),
        (("all_reduce", "cpu", "float32"), True),
        (("all_reduce", "cpu", np.float32, ReduceOp.SUM), True),
        (("all_reduce", "cpu", np.float32, "max"), False),
        (("all_reduce", "cpu", None, "BAND"), False),
        (("broadcast", "cpu", np.dtype("float64")), False),
        (("gather", "cpu"), False),
        (("scatter", "cpu"), True),
        (("barrier", "cpu"), False),
        (("reduce", "cpu"), False),
        (("tags", "cpu"), True),
        (("split", "cpu"), False),
    ],
)
def test_supports_answers_for_this_machine(question, answer):
    assert TOY.supports(*question) is answer


def test_a_device_is_usable_where_some_operation_on_its_arrays_is():
    moon = Device(conditional("send", reason="needs a full moon", holds=lambda: False) | native("barrier"))
    sun = Device(conditional("send", reason="needs the sun", holds=lambda: True))
    assert Capabilities("toy", {"cpu": moon, "cuda": sun}).usable_devices() == ["cuda"]


def test_supports_refuses_names_that_do_not_exist():
    with pytest.raises(ValueError, match="no such operation"):
        TOY.supports("allreduce", "cpu")
    with pytest.raises(ValueError, match="no such reduce op"):
        dist.supports("all_reduce", "cpu", None, "SUMM")
    with pytest.raises(ValueError, match="do not exist"):
        Device({"allreduce": None})


def test_a_refusal_names_op_device_dtype_reason_and_who_could():
    def installed():
        everything = {**native(*OPS)}
        return [TOY, Capabilities("better", {"cpu": Device(everything, native(*FEATURES))})]

    with pytest.raises(dist.UnsupportedOperationError) as caught:
        require(TOY, "all_reduce", "cpu", np.dtype("int64"), ReduceOp.MAX, installed)
    for word in ("'toy'", "all_reduce(MAX)", "int64", "cpu", "better"):
        assert word in str(caught.value)
    with pytest.raises(NotImplementedError, match="full moon"):
        require(TOY, "gather", "cpu", np.dtype("int64"), None, installed)
    with pytest.raises(dist.UnsupportedOperationError, match="no installed backend could"):
        require(TOY, "reduce", "cuda", np.dtype("int64"), None, lambda: [TOY])
    with pytest.raises(dist.UnsupportedOperationError, match=r"recv with the feature 'any_source'.*better"):
        require_feature(TOY, "any_source", "cpu", "recv", installed)
    with pytest.raises(TypeError, match="object collectives"):
        require(TOY, "send", "cpu", np.dtype(object), None, installed)


def test_it_prints_as_a_table_and_as_json_and_markdown():
    table = CapabilityTable([TOY])
    text = str(table)
    assert text.splitlines()[0].split() == ["operation", "toy", "cpu"]
    assert "gather          conditional: no here [1]" in text
    assert "[1] needs a full moon" in text
    plain = json.loads(table.to_json())["toy"]["cpu"]
    assert plain["ops"]["all_reduce"]["reduce_ops"] == {"SUM": ["int8", "float32"], "MAX": ["int8"]}
    assert plain["ops"]["gather"] == {
        "support": "conditional",
        "reason": "needs a full moon",
        "usable": False,
        "dtypes": list(DTYPES),
    }
    assert plain["features"]["tags"] == {"support": "native"}
    assert "| send | native |" in table.to_markdown()


def test_every_dispatch_is_checked():
    def refused():
        for call in (
            lambda: dist.all_reduce(np.zeros(1, "S3")),
            lambda: dist.all_reduce(np.zeros(1, np.float32), ReduceOp.BAND),
            lambda: dist.reduce_scatter_single(np.zeros(1, "M8[s]"), np.zeros(2, "M8[s]"), ReduceOp.PRODUCT),
        ):
            with pytest.raises(dist.UnsupportedOperationError, match="'local' does not do"):
                call()
        with pytest.raises(dist.UnsupportedOperationError, match="reduce with SUM, and divide"):
            dist.all_reduce(np.zeros(1, int), ReduceOp.AVG)
        with pytest.raises(TypeError, match="object collectives"):
            dist.broadcast(np.array([None]), src=0)
        array = np.ones(2)
        dist.all_reduce(array)
        return array[0]

    with local_world(2) as ranks:
        assert ranks.run(refused) == [2.0, 2.0]


def test_capabilities_of_a_backend_that_is_not_there():
    with pytest.raises(dist.BackendNotFoundError):
        dist.capabilities("no_such_backend")
    assert dist.capabilities("LOCAL").supports("all_reduce", "cpu", np.float32, ReduceOp.SUM)
