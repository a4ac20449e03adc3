"""What an array is to be: its shape and its dtype, and how ranks tell each other."""

from __future__ import annotations

import math
import operator
from ast import literal_eval
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import descr_to_dtype, dtype_to_descr
from numpy.typing import DTypeLike

from rankwise.backends import dtype_text
from rankwise_arrays.kinds import Array


class Form(NamedTuple):
    """A shape and a dtype."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """How much memory such an array takes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{dtype_text(self.dtype)}{list(self.shape)}"


def form_of(shape: int | Sequence[int], dtype: DTypeLike) -> Form:
    """Return what `numpy.empty` would make of these.

    Raises:
        TypeError: The dtype has objects in it.
        ValueError: There is no such shape.
    """
    lengths = (shape,) if isinstance(shape, (int, np.integer)) else shape
    of_one = np.empty((), dtype)  # a dtype of arrays becomes axes
    form = Form((*map(operator.index, lengths), *of_one.shape), of_one.dtype)
    if any(length < 0 for length in form.shape):
        raise ValueError(f"an array of shape {form.shape} cannot be")
    return _checked(form)


def form_of_array(array: Array) -> Form:
    """Return the form of an array, of the host or a device.

    Raises:
        TypeError: It has objects in it, or a dtype that cannot be told to others.
    """
    form = _checked(Form(array.shape, np.dtype(array.dtype)))
    if read_form(*described(form)) != form:
        raise TypeError(
            f"an array of dtype {form.dtype} cannot be described to other ranks; give a view of another dtype"
        )
    return form


def described(form: Form) -> list[Any]:
    """Return what other ranks make the form of."""
    try:
        return [list(form.shape), repr(dtype_to_descr(form.dtype))]
    except ValueError as error:
        raise TypeError(f"an array of dtype {form.dtype} cannot be described to other ranks: {error}") from error


def read_form(shape: Sequence[int], description: str) -> Form:
    """Return the form that has been described."""
    return Form(tuple(shape), descr_to_dtype(literal_eval(description)))


def _checked(form: Form) -> Form:
    if form.dtype.hasobject:
        raise TypeError(
            f"an array of dtype {form.dtype} cannot be shared: its elements are addresses, which mean nothing to others"
        )
    return form
