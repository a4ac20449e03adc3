"""What the ranks of `test_kinds.py` do: rank 1 uses a tensor of some kind in each call and role, rank 0 plain ones."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from kinds import KINDS

#: What a refused call may raise.
_REFUSALS = (TypeError, RuntimeError, ValueError, NotImplementedError)
_SMALL, _WIDE = (2, 2, 2, 2), (4, 2, 2, 2)


class Case:
    """The tensors of one call on one rank; what is of the kind, and what is plain."""

    def __init__(self, rank, kind, role, shapes):
        self.rank, self.kind, self.role = rank, kind, role
        self.input_shape, self.output_shape = shapes
        self.spare, self.blank = self._full(7), self._full(-1)
        is_odd = rank == 1
        plain = torch.arange(float(self.input_shape.numel())).view(self.input_shape).to(kind.dtype) + 100 * rank
        if kind.dtype.is_complex:
            plain += 0.5j
        self.x = kind.make(plain) if is_odd and role != "output" else plain.clone()
        self.is_looked_at = is_odd and role != "output" and kind.look is not None
        #: The input's values, asked of a twin, as asking may change the input.
        self.seen = kind.look(kind.make(plain)).clone() if self.is_looked_at else plain
        self.out = self._full(-1, self.output_shape)
        if is_odd and role == "output":
            self.out = kind.make(self.out)

    def _full(self, value, shape=_SMALL):
        return torch.full(shape, float(value), dtype=self.kind.dtype)

    def found(self, tensor):
        """Return the values of a tensor that was filled."""
        is_odd = self.rank == 1 and ((tensor is self.out and self.role == "output") or tensor is self.x)
        return self.kind.look(tensor) if is_odd else tensor


def _all_reduce(c):
    return lambda: dist.all_reduce(c.x, async_op=True), lambda x0, x1: [(c.x, x0 + x1)]


def _all_reduce_coalesced(c):
    options = _later(c10d.AllreduceCoalescedOptions())
    return lambda: dist.group.WORLD.allreduce_coalesced([c.x], options), lambda x0, x1: [(c.x, x0 + x1)]


def _reduce(c):
    return lambda: dist.reduce(c.x, 1, async_op=True), lambda x0, x1: [(c.x, x0 + x1)] if c.rank else []


def _broadcast(c):
    root = int(c.role == "input")
    tensor = c.x if c.rank == root else c.out
    return (
        lambda: dist.broadcast(tensor, root, async_op=True),
        lambda x0, x1: [] if c.rank == root else [(c.out, x1 if root else x0)],
    )


def _all_gather(c):
    outputs = [c.out, c.blank]
    return lambda: dist.all_gather(outputs, c.x, async_op=True), lambda x0, x1: [(c.out, x0), (c.blank, x1)]


def _all_gather_single(c):
    return lambda: dist.all_gather_single(c.out, c.x, async_op=True), lambda x0, x1: [(c.out, torch.cat([x0, x1]))]


def _all_gather_single_coalesced(c):
    call, options = dist.group.WORLD.all_gather_single_coalesced, _later(c10d.AllgatherOptions())
    return lambda: call([c.out], [c.x], options), lambda x0, x1: [(c.out, torch.cat([x0, x1]))]


def _all_gather_coalesced(c):
    call, options = dist.group.WORLD.allgather_coalesced, _later(c10d.AllgatherOptions())
    return lambda: call([[c.out], [c.blank]], [c.x], options), lambda x0, x1: [(c.out, x0), (c.blank, x1)]


def _gather(c):
    root = int(c.role == "output")
    outputs = [c.out, c.blank] if c.rank == root else None
    return (
        lambda: dist.gather(c.x, outputs, root, async_op=True),
        lambda x0, x1: [(c.out, x0), (c.blank, x1)] if c.rank == root else [],
    )


def _scatter(c):
    root = int(c.role == "input")
    parts = [c.x, c.spare][:: 1 if root else -1] if c.rank == root else None
    expected = c.spare if c.rank == root else None
    return (
        lambda: dist.scatter(c.out, parts, root, async_op=True),
        lambda x0, x1: [(c.out, (x1 if root else x0) if expected is None else expected)],
    )


def _reduce_scatter(c):
    return (
        lambda: dist.reduce_scatter(c.out, [c.x, c.spare], async_op=True),
        lambda x0, x1: [(c.out, 2 * c.spare if c.rank else x0 + x1)],
    )


def _reduce_scatter_single(c):
    return (
        lambda: dist.reduce_scatter_single(c.out, c.x, async_op=True),
        lambda x0, x1: [(c.out, (x0 + x1)[_half(c)])],
    )


def _reduce_scatter_single_coalesced(c):
    call, options = dist.group.WORLD.reduce_scatter_single_coalesced, _later(c10d.ReduceScatterOptions())
    return lambda: call([c.out], [c.x], options), lambda x0, x1: [(c.out, (x0 + x1)[_half(c)])]


def _all_to_all(c):
    outputs = [c.out, c.blank]
    return (
        lambda: dist.all_to_all(outputs, [c.x, c.spare], async_op=True),
        lambda x0, x1: [(c.out, c.spare if c.rank else x0), (c.blank, c.spare if c.rank else x1)],
    )


def _all_to_all_single(c):
    return (
        lambda: dist.all_to_all_single(c.out, c.x, async_op=True),
        lambda x0, x1: [(c.out, torch.cat([x0[_half(c)], x1[_half(c)]]))],
    )


def _send(c):
    return (
        lambda: dist.isend(c.x, 0) if c.rank else dist.irecv(c.out, 1),
        lambda x0, x1: [] if c.rank else [(c.out, x1)],
    )


def _recv(c):
    return (
        lambda: dist.irecv(c.out, 0) if c.rank else dist.isend(c.x, 1),
        lambda x0, x1: [(c.out, x0)] if c.rank else [],
    )


def _recv_anyone(c):
    return (
        lambda: dist.irecv(c.out) if c.rank else dist.isend(c.x, 1),
        lambda x0, x1: [(c.out, x0)] if c.rank else [],
    )


def _half(c):
    return slice(2 * c.rank, 2 * c.rank + 2)


def _later(options):
    options.asyncOp = True
    return options


_EACH = ("input", "output")
_CALLS = {
    (_all_reduce, _all_reduce_coalesced, _reduce): (("both",), _SMALL, _SMALL),
    (_broadcast, _all_gather, _all_gather_coalesced, _gather, _scatter, _reduce_scatter): (_EACH, _SMALL, _SMALL),
    (_all_gather_single, _all_gather_single_coalesced): (_EACH, _SMALL, _WIDE),
    (_reduce_scatter_single, _reduce_scatter_single_coalesced): (_EACH, _WIDE, _SMALL),
    (_all_to_all,): (_EACH, _SMALL, _SMALL),
    (_all_to_all_single,): (_EACH, _WIDE, _WIDE),
    (_send,): (("input",), _SMALL, _SMALL),
    (_recv, _recv_anyone): (("output",), _SMALL, _SMALL),
}
#: Each call in each role, with the shapes of its input and output.
CASES = [
    (call, role, tuple(map(torch.Size, shapes)))
    for calls, (roles, *shapes) in _CALLS.items()
    for call in calls
    for role in roles
]


def every_call(rank, size):
    """Use each kind in each call and role; what is not right must be refused before anything has gone out."""
    for member in range(size):
        dist.new_group([member])
    store = c10d._get_default_store()
    store.set_timeout(timedelta(seconds=20))
    wrong = []
    for name, kind in KINDS.items():
        for call, role, shapes in CASES:
            where = f"{name}, {call.__name__[1:]}, {role}"
            if name == "sparse" and call is _all_reduce:
                continue  # which is taken, by all ranks or none
            try:
                problem = _one(store, where, call, Case(rank, kind, role, shapes))
            except Exception as error:
                raise AssertionError("\n".join([*wrong, where])) from error
            if problem:
                wrong.append(f"{where}: {problem}")
    dist.barrier()
    assert not wrong, "\n".join(wrong)


def _one(store, where, call, case):
    """Return what is wrong with a call, if anything is. Rank 1 tells what it has sent, nothing if it was refused."""
    issue, results = call(case)
    kind, other = case.kind, case.input_shape
    if not case.rank:
        told = store.get(where)
        if not told:
            return None
        theirs = torch.frombuffer(bytearray(told), dtype=kind.dtype).view(other)
        work, (x0, x1) = issue(), (case.seen, theirs)
    else:
        try:
            with kind.within():
                work = issue()
        except _REFUSALS as error:
            store.set(where, "")
            return _unless_refused_well(error, kind, case.role)
        store.set(where, "" if kind.is_fake else case.seen.contiguous().numpy().tobytes())
        if kind.is_fake:
            return None
        x0, x1 = case.seen - 100, case.seen
        x0 = torch.arange(float(other.numel())).view(other).to(kind.dtype) + (0.5j if kind.dtype.is_complex else 0)
    _end(work) if case.rank else work.wait()
    for tensor, expected in results(x0, x1):
        if not torch.equal(case.found(tensor), expected):
            return f"{case.found(tensor).flatten().tolist()} instead of {expected.flatten().tolist()}"
    return None


def _unless_refused_well(error, kind, role):
    must_be_taken = all(kind.taken) if role == "both" else kind.taken[role == "output"]
    if must_be_taken and not kind.is_fake:
        return f"refused: {error!r}"
    return f"refused in few words: {error!r}" if len(str(error)) < 25 else None


def _end(work):
    """See that a work has ended, without waiting for it."""
    deadline = time.monotonic() + 20
    while not work.is_completed():
        assert time.monotonic() < deadline, "it does not end"
        time.sleep(0.0005)
    assert work.is_success(), work.exception()
