"""Bugs in what reductions do in between: how wide they work, what they multiply by, what they take for zero."""

import numpy as np
from honest import Meddling, OwnReductions, Rewording, folded, planted


@planted
class nat_is_nothing(OwnReductions):
    """SUM ignores NaT."""

    def fold(self, op, arrays):
        if op.name != "SUM" or arrays[0].dtype.kind != "m":
            return None
        return folded(np.add, [np.where(np.isnat(array), array.dtype.type(0, "s"), array) for array in arrays])


@planted
class narrow_average(OwnReductions):
    """The sum of an AVG of float16 is rounded to float16 before the division."""

    def fold(self, op, arrays):
        if op.name != "AVG" or arrays[0].dtype != np.float16:
            return None
        total = folded(np.add, [array.astype(np.float32) for array in arrays])
        with np.errstate(all="ignore"):
            return total.astype(np.float16) / np.float16(len(arrays))


@planted
class narrow_product(OwnReductions):
    """float16 is multiplied in float16."""

    def fold(self, op, arrays):
        return folded(np.multiply, arrays) if op.name == "PRODUCT" and arrays[0].dtype == np.float16 else None


@planted
class real_factors(Rewording):
    """PREMUL_SUM uses only the real part of a complex factor."""

    def factor(self, given, dtype):
        return given.real if dtype.kind == "c" else given


@planted
class rounded_factors(Rewording):
    """A factor of PREMUL_SUM goes through float32."""

    def factor(self, given, dtype):
        return float(np.float32(given)) if dtype == np.float64 else given


@planted
class no_factor_alone(Rewording):
    """In a world of one PREMUL_SUM does nothing."""

    def factor(self, given, dtype):
        return 1 if self.size == 1 else given


@planted
class whole_factors(Rewording):
    """A factor of PREMUL_SUM below zero is taken without its sign."""

    def factor(self, given, dtype):
        return abs(given) if dtype.kind == "f" else given


@planted
class flushes_subnormals(Meddling):
    """Subnormal results are zeros of the same sign."""

    def after(self, call):
        if call.op == "all_reduce" and call.array.dtype == np.float64 and call.array.flags.c_contiguous:
            tiny = np.abs(call.array) < np.finfo(np.float64).tiny
            call.array[...] = np.where(tiny, np.copysign(0.0, call.array), call.array)


@planted
class subnormals_are_nothing(OwnReductions):
    """MAX of float32 takes subnormal inputs for zero."""

    def fold(self, op, arrays):
        if op.name != "MAX" or arrays[0].dtype != np.float32:
            return None
        least = np.finfo(np.float32).tiny
        return folded(np.maximum, [np.where(np.abs(array) < least, array * np.float32(0), array) for array in arrays])


@planted
class average_of_two(OwnReductions):
    """AVG of float64 divides by two if the size is odd."""

    def fold(self, op, arrays):
        if op.name != "AVG" or arrays[0].dtype != np.float64:
            return None
        return folded(np.add, arrays) / (len(arrays) // 2 * 2 or 1)


@planted
class product_of_two(OwnReductions):
    """A PRODUCT of int32 leaves out all ranks from the fourth on."""

    def fold(self, op, arrays):
        return folded(np.multiply, arrays[:3]) if op.name == "PRODUCT" and arrays[0].dtype == np.int32 else None


@planted
class low_byte_alone(OwnReductions):
    """BAND of 16 bits looks only at the low byte."""

    def fold(self, op, arrays):
        if op.name != "BAND" or arrays[0].dtype != np.uint16:
            return None
        return folded(np.bitwise_and, arrays) | (arrays[0] & np.uint16(0xFF00))


@planted
class avg_in_reduce(Meddling):
    """A reduce with AVG on a root that is not rank 0 leaves the sum."""

    def before(self, call):
        self.divides = call.op == "reduce" and call.reduce_op is not None and call.reduce_op.name == "AVG"

    def after(self, call):
        if self.divides and self.rank == call.root and self.rank and call.array.dtype == np.float32:
            call.array[...] *= self.size
