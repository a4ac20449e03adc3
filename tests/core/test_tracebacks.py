"""A program's traceback ends at its own line and one frame of ours, unless it asks for all of it."""

import ast
import inspect
import signal
import textwrap
import threading
import traceback
from functools import partial

import numpy as np
import pytest
from tests.threads import run_local, soon

import rankwise as dist
from rankwise.basics.tracebacks import anew
from rankwise.basics.work import BoundWork, FutureWork
from rankwise.calls.calling import CombinedWork
from rankwise.errors import CollectiveMismatchError, DistError, DistTimeoutError, GroupAbortedError, PeerDiedError

#: What cannot fail, or only tells the level of what is shown.
CANNOT_FAIL = {
    *("is_available", "is_gloo_available", "is_mpi_available", "is_nccl_available", "is_initialized", "get_pg_count"),
    *("get_node_local_rank", "register_dataclass", "get_debug_level", "set_debug_level", "set_debug_level_from_env"),
    *("Store.among", "Store.close", "Store.clone", "Store.view", "Store.peek", "Store.swap", "Store.scan"),
}
FUNCTIONS = {name: getattr(dist, name) for name in dist.__all__ if inspect.isroutine(getattr(dist, name))}
METHODS = {
    f"Store.{name}": value for name, value in vars(dist.Store).items() if inspect.isfunction(value) and name[0] != "_"
}
WAITS = {f"{kind.__name__}.wait": kind.wait for kind in (FutureWork, BoundWork, CombinedWork)}


@pytest.mark.parametrize("name", sorted({*FUNCTIONS, *METHODS, *WAITS} - CANNOT_FAIL))
def test_what_is_public_shortens_what_it_raises(name):
    function = {**FUNCTIONS, **METHODS, **WAITS}[name]
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    _, *first, block = tree.body
    before = [ast.unparse(line).partition(":")[0] for line in first]
    assert before in ([], ["pg = None"], ["pg = ticket = None"], ["made"]), f"all of {name} belongs into one block"
    if isinstance(block, ast.With):
        # What ends groups is not interrupted in the midst of it.
        assert [ast.unparse(item) for item in block.items] in (
            ["shortened"],
            ["shortened", "held"],
            ["Composed() as call"],
        )
    else:
        handler = ast.unparse(block.handlers[-1])
        # What makes a call on a group ends that after an interrupt, as what makes groups ends those; these shorten too.
        ends = {"failed(pg, error)", "broken(pg, error)"} if first else {"shorten(error)", "self._broken(error)"}
        ends = {"message_failed(pg, ticket, error)"} if before == ["pg = ticket = None"] else ends
        ends = {f"not_made('{name}', made, error)"} if before == ["made"] else ends
        assert handler in {f"except BaseException as error:\n    {end}\n    raise" for end in ends}


def frames(error):
    """Return the functions of our frames, the outermost first."""
    return [frame.name for frame in traceback.extract_tb(error.__traceback__) if "/rankwise" in frame.filename]


def whole(error):
    return "".join(traceback.format_exception(error))


MISTAKES = {
    "all_reduce": lambda: dist.all_reduce([1.0]),
    "broadcast": lambda: dist.broadcast(np.ones(3), src=7),
    "send": lambda: dist.send(np.ones(3), dst=9),
    "irecv": lambda: dist.irecv(np.broadcast_to(np.ones(1), 3)),
    "new_group": lambda: dist.new_group([0, 0]),
    "get_world_size": lambda: dist.get_world_size("group"),
    "all_gather_object": lambda: dist.all_gather_object([], 1),
    "init_process_group": lambda: dist.init_process_group("gloo"),
    "rendezvous": lambda: dist.rendezvous("nowhere"),
    "get": lambda: dist.HashStore().get("key", timeout=0.001),
    "multi_set": lambda: dist.HashStore().multi_set(["a", "b"], ["1"]),
    "wait": lambda: dist.irecv(np.ones(1), tag=5).wait(0.001),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("level", ["OFF", "DETAIL"])
def test_an_error_about_a_call_has_one_frame_of_ours(name, level):
    def program():
        with pytest.raises((ValueError, TypeError, dist.DistError)) as caught:
            MISTAKES[name]()
        return frames(caught.value), whole(caught.value)

    dist.set_debug_level(dist.DebugLevel[level])
    try:
        (ours, text), _ = run_local(2, program)
    finally:
        dist.set_debug_level_from_env()
    if level == "OFF":
        assert ours == [name]
        assert "During handling" not in text
        assert "direct cause" not in text
    elif name not in ("init_process_group", "multi_set", "wait"):  # which raise by themselves
        assert len(ours) > 1


class OfABackend(DistError):
    """An error whose class takes other arguments than it hands on."""

    def __init__(self, device: int, what: str) -> None:
        super().__init__(f"device {device}: {what}")
        self.device = device


KEPT = [OfABackend(3, "lost"), DistTimeoutError("not done"), PeerDiedError(2, "here", "killed")]
KEPT += [CollectiveMismatchError("they differ", (1,)), GroupAbortedError("over")]


@pytest.mark.parametrize("error", KEPT)
def test_what_is_raised_in_place_of_a_kept_error_is_its_like(error: DistError) -> None:
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            raise anew(error)
        assert caught.value is not error
        assert (str(caught.value), caught.value.args) == (str(error), error.args)
        assert vars(caught.value) == vars(error)
    assert error.__traceback__ is None


def test_an_error_before_there_is_a_group_has_one_frame_of_ours():
    for call in (lambda: dist.init_process_group("glooo"), lambda: dist.barrier(), dist.destroy_process_group):
        with pytest.raises((ValueError, dist.DistError)) as caught:
            call()
        assert len(frames(caught.value)) == 1


def test_an_error_that_is_raised_again_does_not_grow():
    work = FutureWork()
    work.fail(dist.GroupAbortedError("given up"))
    lengths = set()
    for _ in range(3):
        with pytest.raises(dist.GroupAbortedError) as caught:
            work.wait()
        lengths.add(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(lengths) == 1


def test_what_the_program_has_given_to_be_called_is_shown(monkeypatch):
    def handler(url, timeout):
        yield from dist.rendezvous("nowhere")

    from rankwise.store import rendezvous

    monkeypatch.setattr(rendezvous, "_handlers", dict(rendezvous._handlers))
    dist.register_rendezvous_handler("short", handler)
    with pytest.raises(ValueError, match="nowhere") as caught:
        dist.init_process_group("gloo", "short://here")
    assert "in handler" in whole(caught.value)


def test_what_may_be_a_flaw_is_shown_in_full(monkeypatch):
    from rankwise.groups import queries

    def broken(*_):
        raise KeyError("a flaw of this package")

    monkeypatch.setattr(queries, "membership", broken)
    monkeypatch.setitem(globals(), "__name__", "rankwise.broken")
    with pytest.raises(KeyError) as caught:
        dist.get_rank()
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][-2:] == ["get_rank", "broken"]


def test_ctrl_c_has_one_frame_of_ours():
    soon(signal.pthread_kill, threading.get_ident(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        dist.HashStore().get("key", timeout=60)
    assert frames(caught.value) == ["get"]


def test_the_systems_own_reason_is_still_told():
    serve = partial(dist.TCPStore, "127.0.0.1", is_master=True, wait_for_workers=False)
    with serve() as store, pytest.raises(dist.DistNetworkError) as caught:
        serve(port=store.port)
    assert frames(caught.value) == ["__init__"]
    assert caught.value.__cause__.errno
