"""All kinds of tensors that torch has on the CPU: how each is made of a plain one, and what its values are."""

from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.utils._python_dispatch import TorchDispatchMode


class Kind(NamedTuple):
    """A kind of tensor."""

    #: Makes one of a plain tensor, whose values it need not have all.
    make: Callable[[torch.Tensor], Any]
    #: Its values as a plain tensor; None where nobody but the kind knows them.
    look: Callable[[Any], torch.Tensor] | None = torch.Tensor.detach
    dtype: torch.dtype = torch.float32
    #: What is so meanwhile.
    within: Callable[[], Any] = nullcontext
    #: Whether calls must take it: as input, as output.
    taken: tuple[bool, bool] = (True, True)
    #: Whether torch makes a fake result of it.
    is_fake: bool = False


def _copied(empty):
    """Return what makes a tensor by writing to an empty one."""

    def make(plain):
        made = empty(plain)
        made.copy_(plain)
        return made

    return make


class Named(torch.Tensor):
    """A subclass that changes nothing."""


class Meddling(torch.Tensor):
    """A subclass whose methods say what is not true."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return 0 if _is_asked_of_memory(func) else super().__torch_function__(func, types, args, kwargs or {})


class Wrapper(torch.Tensor):
    """A subclass that stands for another tensor, and does with that what it is asked to."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.size(), strides=inner.stride(), dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*torch.utils._pytree.tree_map_only(Wrapper, lambda t: t.inner, args), **(kwargs or {}))


class Stubborn(Wrapper):
    """One that knows no collectives."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{cls.__name__} knows no {func}")


class Blind(Wrapper):
    """One that hands itself on as it is."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        with torch._C._DisableTorchDispatch():
            return func(*args, **(kwargs or {}))


class Owner(torch.Tensor):
    """A subclass that has memory of its own, and looks on."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_subclass(cls, inner)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        with torch._C._DisableTorchDispatch():
            return func(*args, **(kwargs or {}))


def _is_asked_of_memory(func):
    return getattr(func, "__name__", "") in ("data_ptr", "numel", "stride", "untyped_storage", "is_contiguous")


def _below(tensor):
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        return torch.empty(0).set_(tensor.untyped_storage(), 0, tensor.shape, tensor.stride())


class _Onlooker(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class _Liar(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return 0 if _is_asked_of_memory(func) else func(*args, **(kwargs or {}))


@contextmanager
def _counting():
    from torch.distributed.tensor.debug import CommDebugMode

    with CommDebugMode() as mode:
        yield
    assert mode.get_total_counts() <= 1  # of messages it has no count


def _asynchronous(plain):
    alone = next(group for group in dist.distributed_c10d._world.pg_map if group.size() == 1)
    return functional.all_reduce(plain, "sum", alone)


def _inference(plain):
    with torch.inference_mode():
        return plain.clone()


def _fake(plain):
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True).from_tensor(plain)


def _dtensor(plain):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Replicate

    mesh = DeviceMesh("cpu", [dist.get_rank()], _init_backend=False, _rank=0)
    return DTensor.from_local(plain, mesh, [Replicate()], run_check=False)


def _freed(nbytes):
    def make(plain):
        plain = plain.clone()
        plain.untyped_storage().resize_(nbytes)
        return plain

    return make


_REFUSED = (False, False)
KINDS = {
    "plain": Kind(torch.clone),
    "parameter": Kind(lambda plain: torch.nn.Parameter(plain.clone())),
    "with a gradient": Kind(lambda plain: plain.clone().requires_grad_() * 1),
    "inference": Kind(_inference),
    "within inference": Kind(torch.clone, within=torch.inference_mode),
    "transposed": Kind(_copied(lambda plain: torch.empty(plain.shape[::-1]).permute(3, 2, 1, 0))),
    "channels last": Kind(lambda plain: plain.clone(memory_format=torch.channels_last)),
    "strided": Kind(_copied(lambda plain: torch.empty(*plain.shape[:-1], 3 * plain.shape[-1])[..., ::3])),
    "padded": Kind(_copied(lambda plain: torch.empty(plain.numel() + 9)[5:-4].view(plain.shape))),
    "expanded": Kind(lambda plain: plain[:1].clone().expand_as(plain), taken=(True, False)),
    "overlapping": Kind(
        lambda plain: plain.clone().as_strided(plain.shape, (1, 1, 1, 1)), torch.clone, taken=(True, False)
    ),
    "interleaved": Kind(
        _copied(lambda plain: torch.empty(999).as_strided(plain.shape, (30, 15, 3, 2))), taken=(True, False)
    ),
    "conjugate": Kind(
        lambda plain: plain.conj().resolve_conj().conj(), torch.Tensor.resolve_conj, torch.complex64, taken=_REFUSED
    ),
    "conjugate, transposed": Kind(
        lambda plain: plain.permute(3, 2, 1, 0).conj().resolve_conj().contiguous().conj().permute(3, 2, 1, 0),
        torch.Tensor.resolve_conj,
        torch.complex64,
        taken=_REFUSED,
    ),
    "negative": Kind(lambda plain: torch._neg_view(-plain), torch.Tensor.resolve_neg),
    "an imaginary part": Kind(lambda plain: torch.complex(plain, -plain).conj().imag, torch.Tensor.resolve_neg),
    "negative conjugate": Kind(
        lambda plain: torch._neg_view((-plain).conj().resolve_conj().conj()),
        lambda odd: odd.resolve_neg().resolve_conj(),
        torch.complex64,
        taken=_REFUSED,
    ),
    "zero": Kind(lambda plain: torch._efficientzerotensor(plain.shape), torch.clone, taken=(True, False)),
    "subclass": Kind(lambda plain: plain.clone().as_subclass(Named)),
    "meddling": Kind(lambda plain: torch.Tensor._make_subclass(Meddling, plain.clone()), lambda odd: _below(odd)),
    "wrapper": Kind(lambda plain: Wrapper(plain.clone()), lambda odd: odd.inner, taken=_REFUSED),
    "stubborn": Kind(lambda plain: Stubborn(plain.clone()), lambda odd: odd.inner, taken=_REFUSED),
    "blind": Kind(lambda plain: Blind(plain.clone()), lambda odd: odd.inner, taken=_REFUSED),
    "owner": Kind(lambda plain: Owner(plain.clone()), lambda odd: _below(odd)),
    "asynchronous": Kind(_asynchronous, lambda odd: odd.trigger_wait()),
    "functional": Kind(torch._to_functional_tensor, torch._from_functional_tensor, taken=_REFUSED),
    "dtensor": Kind(_dtensor, lambda odd: odd.to_local(), taken=_REFUSED),
    "fake": Kind(_fake, None, is_fake=True),
    "nested": Kind(lambda plain: torch.nested.nested_tensor(list(plain)), None, taken=_REFUSED),
    "jagged": Kind(lambda plain: torch.nested.nested_tensor(list(plain), layout=torch.jagged), None, taken=_REFUSED),
    "quantized": Kind(lambda plain: torch.quantize_per_tensor(plain, 0.1, 0, torch.quint8), None, taken=_REFUSED),
    "sparse": Kind(torch.Tensor.to_sparse, None, taken=_REFUSED),
    "compressed": Kind(lambda plain: plain.flatten(1).to_sparse_csr(), None, taken=_REFUSED),
    "mkldnn": Kind(torch.Tensor.to_mkldnn, None, taken=_REFUSED),
    "meta": Kind(lambda plain: plain.to("meta"), None, is_fake=True),
    "freed": Kind(_freed(0), None, taken=_REFUSED),
    "cut": Kind(_freed(8), None, taken=_REFUSED),
    "while a mode looks on": Kind(torch.clone, within=_Onlooker),
    "transposed while a mode looks on": Kind(lambda plain: plain.mT.contiguous().mT, within=_Onlooker),
    "while calls are counted": Kind(torch.clone, within=_counting),
    "while a mode meddles": Kind(torch.clone, within=_Liar),
    "with another device by default": Kind(torch.clone, within=lambda: torch.device("meta")),
}
