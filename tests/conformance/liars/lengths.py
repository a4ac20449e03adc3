"""Bugs that show at some lengths, roots or sizes of the world alone."""

import numpy as np
from honest import Meddling, planted


@planted
class bad_at_16_kib(Meddling):
    """The last element of an all_reduce of exactly 16 KiB is lost."""

    def after(self, call):
        if call.op == "all_reduce" and call.array.nbytes == 16_384:
            call.array.reshape(-1)[-1:] = 0


@planted
class long_parts_of_the_third_root(Meddling):
    """A scatter of four from root 2 brings rank 3 data that repeats from 5,000 elements on."""

    def after(self, call):
        if (call.op, self.size, call.root, self.rank) == ("scatter", 4, 2, 3) and call.array.size > 5_000:
            flat = call.array.reshape(-1)
            flat[5_000:5_003] = flat[:3]


@planted
class bad_from_eleven_on(Meddling):
    """An all_reduce of eleven ranks or more loses its first element."""

    def after(self, call):
        if call.op == "all_reduce" and self.size >= 11:
            call.array.reshape(-1)[:1] = 0


@planted
class bad_at_sixteen(Meddling):
    """A gather of sixteen ranks returns the part of rank 8 as that of rank 0."""

    def after(self, call):
        if call.op == "gather" and self.size == 16 and self.rank == call.root:
            call.outs[0][...] = call.outs[8]


@planted
class one_less_than_a_block(Meddling):
    """An all_gather of 4,095 elements loses the last one of the last rank."""

    def after(self, call):
        if call.op == "all_gather" and call.array.size == 4_095:
            call.outs[-1].reshape(-1)[-1:] = call.outs[-1].reshape(-1)[:1]


@planted
class one_more_than_a_block(Meddling):
    """A reduce_scatter of 1,025 elements does not write the last one to the output."""

    def before(self, call):
        self.was = call.array.reshape(-1)[-1:].copy() if call.array is not None else None

    def after(self, call):
        if call.op == "reduce_scatter" and call.array.size == 1_025:
            call.array.reshape(-1)[-1:] = self.was


@planted
class long_to_the_last_root(Meddling):
    """A gather of more than 32,768 elements to a root that is not rank 0 swaps the first two."""

    def after(self, call):
        if call.op == "gather" and call.root == self.rank and self.rank and call.array.size > 32_768:
            part = call.outs[0].reshape(-1)
            part[:2] = part[:2][::-1].copy()


@planted
class long_exchange(Meddling):
    """An all_to_all of 8,192 elements or more replaces this rank's own part by another's."""

    def after(self, call):
        if call.op == "all_to_all" and self.size > 2 and call.outs[self.rank].size >= 8_192:
            call.outs[self.rank][...] = call.outs[self.rank - 1]


@planted
class three_of_four_in_reduce(Meddling):
    """A reduce of 65,537 elements adds the last one twice on the root."""

    def after(self, call):
        if call.op == "reduce" and self.rank == call.root and call.array.size == 65_537:
            flat = call.array.reshape(-1)
            flat[-1:] += np.ones(1, flat.dtype)
