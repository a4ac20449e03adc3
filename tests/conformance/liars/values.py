"""Bugs in what arrives: values, parts, roots, worlds of some sizes."""

import numpy as np
from honest import Meddling, OwnReductions, folded, planted

from rankwise_local import LocalCommunicator


@planted
class min_loses_zero(OwnReductions):
    """MIN of negative zeros is 0.0."""

    def fold(self, op, arrays):
        return folded(np.minimum, arrays) + 0.0 if op.name == "MIN" and arrays[0].dtype.kind == "f" else None


@planted
class narrow_sum(OwnReductions):
    """float16 is summed in float16."""

    def fold(self, op, arrays):
        return folded(np.add, arrays) if op.name == "SUM" and arrays[0].dtype == np.float16 else None


@planted
class order_of_ranks(OwnReductions):
    """Each rank adds up the arrays beginning with its own, so that the last bits differ."""

    def fold(self, op, arrays):
        if op.name != "SUM" or arrays[0].dtype != np.float32:
            return None
        return folded(np.add, arrays[self.rank :] + arrays[: self.rank])


@planted
class saturates(OwnReductions):
    """The sum of small integers stops at the end of their range."""

    def fold(self, op, arrays):
        if op.name != "SUM" or arrays[0].dtype != np.int8:
            return None
        return np.clip(folded(np.add, [array.astype(int) for array in arrays]), -128, 127).astype(np.int8)


@planted
class exclusive_or(OwnReductions):
    """The sum of booleans is their exclusive or."""

    def fold(self, op, arrays):
        return folded(np.logical_xor, arrays) if op.name == "SUM" and arrays[0].dtype == bool else None


@planted
class one_factor(OwnReductions):
    """PREMUL_SUM multiplies all arrays by this rank's factor."""

    def fold(self, op, arrays):
        if op.name != "PREMUL_SUM" or arrays[0].dtype != np.float32:
            return None
        return folded(np.add, arrays) * np.float32(op.factor)


@planted
class conjugates(OwnReductions):
    """The product of complex numbers is conjugated."""

    def fold(self, op, arrays):
        product = op.name == "PRODUCT" and arrays[0].dtype == np.complex64
        return np.conj(folded(np.multiply, arrays)) if product else None


@planted
class forgets_nat(OwnReductions):
    """MIN of times ignores NaT."""

    def fold(self, op, arrays):
        return folded(np.fmin, arrays) if op.name == "MIN" and arrays[0].dtype.kind == "M" else None


@planted
class rounded_max(OwnReductions):
    """MAX of uint64 goes through float64."""

    def fold(self, op, arrays):
        if op.name != "MAX" or arrays[0].dtype != np.uint64:
            return None
        with np.errstate(all="ignore"):
            return folded(np.maximum, [array.astype(np.float64) for array in arrays]).astype(np.uint64)


@planted
class or_for_xor(OwnReductions):
    """BXOR is BOR."""

    def fold(self, op, arrays):
        return folded(np.bitwise_or, arrays) if op.name == "BXOR" and arrays[0].dtype == np.uint16 else None


@planted
class changes_the_root(Meddling):
    """A broadcast adds 0.0 to the root's own buffer, which loses the sign of zeros."""

    def after(self, call):
        if call.op == "broadcast" and self.rank == call.root and call.array.dtype == np.float32:
            call.array.reshape(-1)[...] += 0.0 if call.array.flags.writeable else 0


@planted
class changes_the_others(Meddling):
    """A reduce leaves the first partial sum in the buffers of ranks that are not the root."""

    def after(self, call):
        if call.op == "reduce" and self.rank != call.root and call.array.size > 2 and call.array.flags.writeable:
            call.array.reshape(-1)[:1] = call.array.reshape(-1)[1:2]


@planted
class changes_the_parts(Meddling):
    """A reduce_scatter adds up in this rank's own part."""

    def after(self, call):
        if call.op == "reduce_scatter" and call.array.size and call.ins[self.rank].flags.writeable:
            call.ins[self.rank][...] = call.array.reshape(call.ins[self.rank].shape)


@planted
class misses_its_own(Meddling):
    """The root of a gather does not copy its own part if there are more than 1,000 elements."""

    def after(self, call):
        if call.op == "gather" and self.rank == call.root and call.array.size > 1_000:
            call.outs[self.rank][...] = 0


@planted
class global_root(Meddling):
    """A broadcast in a subgroup has no source if the root's ranks in group and world differ."""

    def after(self, call):
        if call.op == "broadcast" and self.context.global_ranks[call.root] != call.root and self.rank != call.root:
            call.array[...] = np.zeros(1, call.array.dtype)


@planted
class nothing_from_who_has_nothing(Meddling):
    """A rank with nothing for one of the others sends the first of the rest as zeros in an all_to_all."""

    def after(self, call):
        if call.op == "all_to_all" and any(not part.size for part in call.outs):
            for part in call.outs:
                if part.size:
                    part.reshape(-1)[:1] = 0


@planted
class bad_at_six(Meddling):
    """An all_reduce of 6 ranks is wrong in its last element."""

    def after(self, call):
        if call.op == "all_reduce" and self.size == 6 and call.array.size:
            call.array.reshape(-1)[-1:] = 0


@planted
class bad_at_eight(Meddling):
    """An all_gather of 8 ranks swaps the last two parts."""

    def after(self, call):
        if call.op == "all_gather" and self.size == 8 and call.array.size:
            call.outs[-1][...], call.outs[-2][...] = call.outs[-2].copy(), call.outs[-1].copy()


@planted
class bad_at_ten(Meddling):
    """An all_to_all of 10 ranks loses what comes from the last one."""

    def after(self, call):
        if call.op == "all_to_all" and self.size == 10:
            call.outs[9][...] = np.zeros(1, call.outs[9].dtype)


@planted
class third_root(Meddling):
    """A scatter from rank 3 gives every rank the first part."""

    def before(self, call):
        if call.op == "scatter" and call.root == 3 and self.rank == 3:
            call.ins = [call.ins[0]] * self.size


@planted
class drops_dimensions(Meddling):
    """An all_reduce of a scalar array does nothing."""

    def after(self, call):
        if call.op == "all_reduce" and call.array.shape == ():
            call.array[...] = 0


@planted
class short_of_one(Meddling):
    """Where parts differ in size, the last element of the longest is lost in an all_gather."""

    def after(self, call):
        if call.op == "all_gather" and len({part.size for part in call.outs}) > 1:
            max(call.outs, key=lambda part: part.size).reshape(-1)[-1:] = 0


@planted
class swaps_fields(Meddling):
    """Structs with padding come packed in a gather."""

    def after(self, call):
        if call.op == "gather" and self.rank == call.root and call.array.dtype.isalignedstruct:
            for part in call.outs:
                raw = part.reshape(-1).view(np.uint8)
                raw[:] = np.roll(raw, 1)


@planted
class odd_counts(Meddling):
    """A broadcast of 1,001 elements or more loses the last element if their number is odd."""

    def after(self, call):
        if call.op == "broadcast" and call.array.size > 1_000 and call.array.size % 2 and self.rank != call.root:
            call.array.reshape(-1)[-1:] = call.array.reshape(-1)[:1]


@planted
class ignores_nan(OwnReductions):
    """MAX of floats ignores NaN."""

    def fold(self, op, arrays):
        return folded(np.fmax, arrays) if op.name == "MAX" and arrays[0].dtype.kind == "f" else None


@planted
class signed_min(OwnReductions):
    """MIN of uint64 compares as if they were signed."""

    def fold(self, op, arrays):
        if op.name != "MIN" or arrays[0].dtype != np.uint64:
            return None
        return folded(np.minimum, [array.astype(np.int64) for array in arrays]).astype(np.uint64)


@planted
class float_product(OwnReductions):
    """PRODUCT of int64 goes through float64, and loses what does not fit into 53 bits."""

    def fold(self, op, arrays):
        if op.name != "PRODUCT" or arrays[0].dtype != np.int64:
            return None
        with np.errstate(all="ignore"):
            return folded(np.multiply, [array.astype(np.float64) for array in arrays]).astype(np.int64)


@planted
class bad_end(LocalCommunicator):
    """The last element of a broadcast of more than 4 MiB is wrong."""

    def run(self, call, timeout_s, async_op=False):
        work, array = super().run(call, timeout_s, async_op), call.array
        if call.op == "broadcast" and array.nbytes > 4 << 20 and self.rank != call.root and not async_op:
            array.reshape(-1)[-1:] = array.reshape(-1)[:1]
        return work
