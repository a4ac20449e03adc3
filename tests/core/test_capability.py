"""The capability table: declared as data, asked, printed, and the one place that refuses."""

import json
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from tests.threads import on_ranks

import rankwise as dist
from rankwise import ReduceOp
from rankwise.backends.capability import Capabilities, Others, require, require_feature
from rankwise.backends.capability_table import CapabilityTable
from rankwise.backends.cells import Availability, Device, Support, Why, conditional, derived, native, no
from rankwise.backends.declaration import BackendSpec
from rankwise.backends.registry import registry
from rankwise.backends.vocabulary import FEATURES, OPS, REDUCTIONS
from rankwise.basics import reduce_op
from rankwise.basics.arrays import DTYPES, dtype_name
from rankwise.collective.call import OPERATIONS
from rankwise_local import LocalCommunicator

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
    scales = np.issubdtype(dtype, np.inexact) or "float" in name
    table = reduce_op.REDUCE_OP_TABLE
    defined = {op for op, row in table.items() if (scales or not row.scales) and numpy_reduces(op, dtype)}
    assert {op for op, dtypes in REDUCTIONS.items() if name in dtypes} == defined
    assert {op for op in REDUCTIONS if ReduceOp(op).defined_for(dtype)} == defined


def numpy_reduces(op, dtype):
    """Tell whether NumPy combines two arrays, in the dtype that the op accumulates in, to an array of that dtype."""
    if dtype.names is not None:
        return False
    one = np.zeros(1, reduce_op.accumulation_dtype(op, dtype))
    try:
        with np.errstate(all="ignore"):
            return bool(reduce_op.REDUCE_OP_TABLE[op].ufunc(one, one).dtype == one.dtype)
    except TypeError:
        return False


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        *((("send", "cpu"), True), (("send", "cuda"), False), (("send", "cpu", np.int16), True)),
        *((("all_reduce", "cpu", "float32"), True), (("all_reduce", "cpu", "int8"), True)),
        *((("all_reduce", "cpu", "float64"), False), (("all_reduce", "cpu", np.float32, ReduceOp.SUM), True)),
        *((("all_reduce", "cpu", np.float32, "max"), False), (("all_reduce", "cpu", None, "BAND"), False)),
        *((("broadcast", "cpu", np.dtype("float64")), False), (("gather", "cpu"), False), (("scatter", "cpu"), True)),
        *((("barrier", "cpu"), False), (("reduce", "cpu"), False), (("tags", "cpu"), True), (("shrink", "cpu"), False)),
    ],
)
def test_supports_answers_for_this_machine(question, answer):
    assert TOY.supports(*question) is answer


def test_tables_for_groups_of_other_sizes_differ():
    pairs = replace(TOY, sizes=range(2, 3))
    assert pairs.digest() == replace(TOY, sizes=range(2, 3)).digest() != TOY.digest()
    assert next(iter(CapabilityTable([pairs]).filter(device="cpu"))).sizes == range(2, 3)


@pytest.mark.parametrize(
    ("messages", "support", "how"),
    [
        (native("send", "recv"), Support.DERIVED, Support.DERIVED),
        (conditional("send", "recv", reason="needs a full moon", holds=lambda: False), Support.CONDITIONAL, None),
        (no("send", "recv"), Support.NO, None),
    ],
)
def test_a_collective_that_a_program_adds_later_is_derived_where_messages_are(monkeypatch, messages, support, how):
    table = Capabilities("early", {"cpu": Device(ops={**messages, **derived("broadcast")})})
    assert table.cell("all_reduce", "cpu").support is Support.NO  # it is not declared, and not new
    monkeypatch.setitem(OPERATIONS, "scan", OPERATIONS["all_reduce"])
    assert table.cell("scan", "cpu").support is support
    assert table.ask("scan", "cpu", np.float32, ReduceOp.MAX).how is how
    assert table.supports("scan", "cpu", np.float32, ReduceOp.MAX) is (how is not None)


def test_a_device_is_usable_where_some_operation_on_its_arrays_is():
    moon = Device(conditional("send", reason="needs a full moon", holds=lambda: False) | native("barrier"))
    sun = Device(conditional("send", reason="needs the sun", holds=lambda: True))
    assert Capabilities("toy", {"cpu": moon, "cuda": sun}).usable_devices() == ["cuda"]


def test_a_refusal_names_op_device_dtype_reason_and_who_could():
    def installed():
        everything = {**native(*OPS)}
        better = {"cpu": Device(everything, native(*FEATURES))}
        asleep = Capabilities("asleep", better, here=lambda: Availability(False, "it is night"))
        return Others([TOY, Capabilities("better", better), asleep], ["unread"])

    with pytest.raises(dist.UnsupportedOperationError) as caught:
        require(TOY, "all_reduce", "cpu", np.dtype("int64"), ReduceOp.MAX, installed)
    for word in ("'toy'", "all_reduce(MAX)", "int64", "cpu", "could: better", "asleep could, but needs: it is night"):
        assert word in str(caught.value)
    assert "`rankwise backends --op all_reduce` asks unread" in str(caught.value)
    with pytest.raises(NotImplementedError, match="full moon"):
        require(TOY, "gather", "cpu", np.dtype("int64"), None, installed)
    with pytest.raises(dist.UnsupportedOperationError, match="no installed backend could"):
        require(TOY, "reduce", "cuda", np.dtype("int64"), None, lambda: Others([TOY]))
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
    refused = {"support": "conditional", "reason": "needs a full moon", "usable": False, "why": "condition"}
    assert plain["ops"]["gather"] == {**refused, "dtypes": list(DTYPES)}
    assert plain["features"]["tags"] == {"support": "native", "usable": True}
    assert "| send | native |" in table.to_markdown()


@on_ranks(2)
def test_every_dispatch_is_checked():
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
    assert array[0] == 2.0


def test_capabilities_are_asked_for_by_the_name_of_a_backend_that_is_there():
    with pytest.raises(dist.BackendNotFoundError):
        dist.capabilities("no_such_backend")
    assert dist.capabilities("LOCAL").supports("all_reduce", "cpu", np.float32, ReduceOp.SUM)


class TorchLikeDevice:
    """What a device of torch looks like from outside."""

    type = "cuda"
    index = 0


class DeviceArray:
    """What an array of another library looks like."""

    def __dlpack_device__(self):
        return (2, 0)


DEVICES = Capabilities("toy", {"cpu": TOY.devices["cpu"], "cuda": Device(native("send"))})


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        *(("cpu", "cpu"), ("cpu:0", "cpu"), ("cuda", "cuda"), ("cuda:11", "cuda")),
        *((np.zeros(1), "cpu"), (TorchLikeDevice(), "cuda"), (DeviceArray(), "cuda")),
    ],
    ids=str,
)
def test_a_device_may_be_named_as_everywhere_else(device, kind):
    assert DEVICES.supports("send", device)
    assert DEVICES.supports("recv", device) is (kind == "cpu")


def test_a_device_that_no_backend_serves_is_a_no_and_a_misspelt_one_an_error():
    assert not DEVICES.supports("send", "xpu:1")
    assert DEVICES.ask("send", "xpu").why is Why.DEVICE
    odd = Capabilities("toy", {"abacus": Device(native("send"))})
    assert odd.supports("send", "abacus:3")


@pytest.mark.parametrize("ask", [DEVICES.supports, dist.supports], ids=["one table", "all"])
@pytest.mark.parametrize(
    ("question", "nearest"),
    [
        (("allreduce", "cpu"), "no such operation.*'all_reduce'"),
        (("any_sources", "cpu"), "'any_source'"),
        (("send", "cuad"), "'cuda'"),
        (("send", "CPU"), "'cpu'"),
        (("send", "cuda:x"), "'cuda'"),
        (("send", "cpu", "flaot32"), "'float32'"),
        (("all_reduce", "cpu", None, "SUMM"), "no such reduce op.*'SUM'"),
        (("broadcast", "cpu", "float32", "SUM"), "has no reduce op"),
    ],
    ids=str,
)
def test_a_misspelt_word_is_an_error_that_names_the_nearest(ask, question, nearest):
    with pytest.raises(ValueError, match=nearest):
        ask(*question)


def test_a_misspelt_word_in_a_declaration_is_an_error_likewise():
    with pytest.raises(ValueError, match="there is no 'allreduce'; did you mean 'all_reduce'"):
        Device({"allreduce": None})


def test_without_a_reduce_op_some_reduce_op_must_take_the_dtype():
    for dtype in DTYPES:
        for op in ("all_reduce", "reduce", "reduce_scatter"):
            some = any(dist.supports(op, "cpu", dtype, name, backend="local") for name in REDUCTIONS)
            assert dist.supports(op, "cpu", dtype, backend="local") is some, (op, dtype)


def test_a_backend_that_cannot_run_here_supports_nothing_and_is_asked_once(own_backends):
    asked = []

    def availability():
        asked.append(1)
        return Availability(len(asked) > 1, "no driver", "install it")

    spec = BackendSpec("dead", 1, Capabilities("dead", dict(TOY.devices)), LocalCommunicator, availability)
    registry.register(spec)
    refusal = (False, Why.UNAVAILABLE, "no driver", "install it")
    for _ in range(3):
        assert not dist.supports("send", "cpu", backend="dead")
        assert dist.capabilities("dead").ask("send", "cpu")["dead"][:4] == refusal
    assert dist.capabilities("dead")["dead"].usable_devices() == []
    assert len(asked) == 1
    assert dist.availability("dead")  # the question itself asks again
    assert dist.supports("send", "cpu", backend="dead")
    assert len(asked) == 2


def test_every_no_has_a_reason_for_programs():
    answers = {
        Why.DEVICE: TOY.ask("send", "cuda"),
        Why.UNDECLARED: TOY.ask("shrink", "cpu"),
        Why.REFUSED: TOY.ask("barrier", "cpu"),
        Why.CONDITION: TOY.ask("gather", "cpu"),
        Why.REDUCE_OP: TOY.ask("all_reduce", "cpu", "int8", "BAND"),
        Why.DTYPE: TOY.ask("all_reduce", "cpu", "float64", "SUM"),
    }
    for why, answer in answers.items():
        assert (answer.supported, answer.why) == (False, why)
        assert answer.reason
    assert "int8, float32" in answers[Why.DTYPE].reason
    assert "SUM, MAX" in answers[Why.REDUCE_OP].reason
    assert TOY.ask("send", "cpu") == (True, Why.YES, "", "", Support.NATIVE)


def test_a_condition_that_fails_does_not_hold():
    bad = Capabilities("bad", {"cpu": Device(conditional("send", reason="a driver", holds=lambda: 1 / 0))})
    assert "a driver (the condition cannot be asked: ZeroDivisionError" in bad.ask("send", "cpu").reason
    assert "no here" in str(CapabilityTable([bad]))
    assert bad.to_dict()["cpu"]["ops"]["send"]["usable"] is False

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Capabilities("bad", {"cpu": Device(conditional("send", reason="x", holds=interrupted))}).ask("send", "cpu")


def test_an_answer_is_kept_until_something_changes(own_backends):
    holds = [False]
    ops = {**native("recv"), **conditional("send", reason="a driver", holds=lambda: holds[0])}
    spec = BackendSpec("fickle", 1, Capabilities("fickle", {"cpu": Device(ops)}), LocalCommunicator)
    registry.register(spec)
    for now in (False, True, False):
        holds[0] = now
        assert dist.supports("send", "cpu", backend="fickle") is now
        assert dist.supports("recv", "cpu", backend="fickle")
    fewer = Capabilities("fickle", {"cpu": Device(native("send"))})
    registry.register(replace(spec, capabilities=fewer), replace=True)
    assert not dist.supports("recv", "cpu", backend="fickle")
    assert dist.supports("send", "cpu", backend="fickle")
    registry.unregister("fickle")
    with pytest.raises(dist.BackendNotFoundError):
        dist.supports("send", "cpu", backend="fickle")


BOTH = CapabilityTable([TOY, Capabilities("other", {"cpu": Device(native("send", "recv", "broadcast"))})])


def test_a_table_is_made_smaller_by_backend_device_operation_dtype_and_reduce_op():
    assert [t.backend for t in BOTH.filter(backend="OTHER")] == ["other"]
    assert [row["name"] for row in BOTH.filter(op="send", feature="tags").rows()] == ["send", "tags", "send", "tags"]
    assert {row["name"] for row in BOTH.filter(dtype="float64").rows()} == {"send", "recv", "broadcast", "scatter"}
    reducing = BOTH.filter(dtype="int8", reduce_op="MAX")
    assert {(row["backend"], row["name"]) for row in reducing.rows()} == {("toy", "all_reduce")}
    assert list(BOTH.filter(device="cuda:0")) == []
    with pytest.raises(ValueError, match="no backend 'toi'; did you mean 'toy'"):
        BOTH.filter(backend="toi")


def test_the_difference_of_two_backends_is_a_table_of_what_they_do_not_do_alike():
    differing = {row["name"] for row in BOTH.difference("toy", "other").rows()}
    assert differing == {"all_reduce", "broadcast", "scatter", "gather", "tags"}
    assert not {row["name"] for row in BOTH.difference("toy", "toy").rows()}


def test_rows_are_what_pandas_takes():
    rows = BOTH.rows()
    assert len({tuple(row) for row in rows}) == 1
    [maximum] = [row for row in rows if row["name"] == "all_reduce" and row["reduce_op"] == "MAX"]
    place = {"backend": "toy", "device": "cpu", "kind": "op", "name": "all_reduce", "reduce_op": "MAX"}
    answer = {"support": "native", "usable": True, "why": "", "reason": "", "dtypes": ("int8",)}
    assert maximum == place | answer
    assert all(row["why"] for row in rows if not row["usable"])


def test_data_becomes_the_same_table_again():
    for table in (TOY, replace(TOY, sizes=range(2, 9, 2))):
        again = Capabilities.from_dict("toy", json.loads(json.dumps(table.to_dict())))
        assert (again.to_dict(), again.sizes) == (table.to_dict(), table.sizes)
        assert str(CapabilityTable([again])) == str(CapabilityTable([table]))


def test_a_notebook_shows_reasons_and_nothing_that_a_browser_would_run():
    evil = Capabilities("evil", {"cpu": Device(no("send", reason="<script>alert('x')</script>"))})
    shown = CapabilityTable([evil])._repr_html_()
    assert "<script>" not in shown
    assert 'title="&lt;script&gt;' in shown
