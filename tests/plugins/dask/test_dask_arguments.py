"""What users give, judged in one sentence before a cluster is asked; and errors, which arrive as they are."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import dask.array as da
import pytest
from distributed import Client

import rankwise_dask

PATIENCE_S = 60.0

NO_NUMBERS = [1.5, True, "2", math.nan]
NO_TIMES = [(True, TypeError), ("1", TypeError), (math.nan, ValueError), (-1, ValueError)]
WRONG = [
    *(({"workers": value}, TypeError) for value in NO_NUMBERS if value != "2"),
    *(({"retries": value}, TypeError) for value in [*NO_NUMBERS, None]),
    *(({"timeout": value}, error) for value, error in [*NO_TIMES, (None, TypeError)]),
    *(({"placement_timeout": value}, error) for value, error in [*NO_TIMES, (None, TypeError)]),
    ({"workers": 0}, ValueError),
    ({"workers": -1}, ValueError),
    ({"workers": []}, ValueError),
    ({"workers": [1, 1]}, ValueError),
    ({"workers": "tcp://127.0.0.1:1"}, TypeError),
    ({"retries": -1}, ValueError),
    ({"backend": None}, TypeError),
]


@pytest.fixture
def unasked(client: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Return a client that must not be asked for anything."""
    for name in ("run", "run_on_scheduler", "persist", "who_has"):
        monkeypatch.setattr(client, name, lambda *_, **__: pytest.fail("the cluster was asked"))
    return client


def is_one_sentence(error: BaseException) -> bool:
    """Tell whether an error can be read by somebody who knows the arguments alone."""
    text = str(error)
    return "\n" not in text and len(text) < 200


@pytest.mark.parametrize(("options", "error"), WRONG)
@pytest.mark.parametrize("call", [rankwise_dask.run, rankwise_dask.start])
def test_arguments_are_judged_before_the_cluster_is_asked(
    unasked: Client, call: Any, options: dict[str, Any], error: type[Exception]
) -> None:
    name = next(iter(options))
    with pytest.raises(error, match=name) as caught:
        call(unasked, print, **options)
    assert is_one_sentence(caught.value)


@pytest.mark.parametrize(
    ("args", "options", "error"),
    [
        ((None, da.ones(2)), {}, TypeError),
        ((print, [1, 2]), {}, TypeError),
        ((print, da.ones(2)), {"timeout": math.nan}, ValueError),
        ((print, da.ones(2)), {"backend": 1}, TypeError),
    ],
)
def test_those_of_map_ranks_too(unasked: Client, args: Any, options: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        rankwise_dask.map_ranks(*args, client=unasked, **options)
    assert is_one_sentence(caught.value)


def test_a_client_that_is_closed_is_told_and_what_is_none(cluster: Any) -> None:
    with Client(cluster, set_as_default=False) as closed:
        pass
    for client, error, words in [(closed, ValueError, "closed"), (None, TypeError, "Client"), (1, TypeError, "Client")]:
        for call in (rankwise_dask.run, rankwise_dask.start):
            with pytest.raises(error, match=words) as caught:
                call(client, print)
            assert is_one_sentence(caught.value)
    with pytest.raises(ValueError, match="closed"):
        rankwise_dask.map_ranks(print, da.ones(2), client=closed)
    with pytest.raises(TypeError, match="callable"):
        rankwise_dask.run(closed, None)  # type: ignore[arg-type]


#: Makes each error of rankwise, and sends it there and back in each way that Dask has.
THERE_AND_BACK = """
import pickle, cloudpickle
from distributed.protocol import pickle as of_dask
from rankwise import errors
from rankwise_dask.scheduling import Absent, Refused

FURTHER = {
    "PeerDiedError": (2, "host", "killed"),
    "PeerUnreachableError": (2, "host", "silent"),
    "CollectiveMismatchError": ("they differ", (1, 2)),
    "BackendNotFoundError": ("no such backend", "pip install it"),
    "PluginError": ("broken", "mend it"),
    "ProcessException": ("failed", 1, 4711),
    "ProcessRaisedException": ("failed", 1, 4711),
    "ProcessExitedException": ("failed", 1, 4711, -9, "SIGKILL"),
}
made = [getattr(errors, name)(*FURTHER.get(name, ("what has failed",))) for name in errors.__all__]
for error in [*made, Absent("not there"), Refused("no")]:
    error.rank = 5
    for ways in (pickle, cloudpickle, of_dask):
        back = ways.loads(ways.dumps(error))
        assert type(back) is type(error), (ways, error, back)
        assert (str(back), back.args, vars(back)) == (str(error), error.args, vars(error)), (ways, error, back)
assert len(made) > 15
print("all are back")
"""


@pytest.mark.parametrize("order", ["import rankwise, distributed", "import distributed, rankwise"])
def test_errors_are_the_same_after_a_way_there_and_back(order: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", order + THERE_AND_BACK], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.stdout == "all are back\n", done.stderr
