"""Bugs in messages: tags, order, sizes, who sent them, what becomes of them, what they leave behind."""

import threading
from dataclasses import replace
from typing import ClassVar

import numpy as np
from honest import planted

from rankwise import DistBackendError
from rankwise.backends import COMPLETED, FutureWork, Status
from rankwise_local import LocalCommunicator

OURS = 2**30  # tags from there on are the core's


class Handing(LocalCommunicator):
    """A communicator that may hand on another array than it is given to send."""

    def handed(self, array, dst, tag):
        return array

    def isend(self, array, dst, tag):
        return super().isend(self.handed(array, dst, tag), dst, tag)


@planted
class tag_of_24_bits(LocalCommunicator):
    """Only 24 bits of a tag travel."""

    def isend(self, array, dst, tag):
        return super().isend(array, dst, tag if tag >= OURS else tag & 0xFFFFFF)

    def irecv(self, array, src, tag):
        return super().irecv(array, src, tag if tag >= OURS else tag & 0xFFFFFF)


@planted
class one_byte_in_16_mib(Handing):
    """A byte in the middle of messages over 16 MiB is wrong."""

    def handed(self, array, dst, tag):
        if array.nbytes <= 16 << 20 or array.dtype != np.uint8:
            return array
        wrong = array.copy()
        wrong.reshape(-1)[wrong.size // 2] ^= 1
        return wrong


@planted
class last_of_64_kib(Handing):
    """The last byte of a message of exactly 64 KiB is lost."""

    def handed(self, array, dst, tag):
        if array.nbytes != 65_536 or array.dtype != np.uint8 or tag >= OURS:
            return array
        wrong = array.copy()
        wrong[-1] ^= 1
        return wrong


@planted
class misnames_the_sender(LocalCommunicator):
    """A receive from any rank reports rank 0 as the sender."""

    def irecv(self, array, src, tag):
        work = super().irecv(array, src, tag)
        if src is None:
            work.source_rank = lambda: 0
        return work


@planted
class overtakes(LocalCommunicator):
    """The fifth of the messages to a rank is held back until the next one has gone."""

    def __init__(self, context):
        super().__init__(context)
        self.count, self.held = 0, None

    def isend(self, array, dst, tag):
        if tag >= OURS or array.nbytes > 64 or dst == self.rank:
            return super().isend(array, dst, tag)
        self.count += 1
        if self.count % 5 == 0 and self.count < 30:
            self.held = array.copy(), dst, tag
            return COMPLETED
        work = super().isend(array, dst, tag)
        if self.held is not None:
            held, self.held = self.held, None
            super().isend(*held)
        return work


@planted
class wants_the_size(LocalCommunicator):
    """A message that is shorter than its buffer is an error."""

    def irecv(self, array, src, tag):
        work = super().irecv(array, src, tag)
        box, wait = self._boxes[self.rank], work.wait
        raw = array.reshape(-1).view(np.uint8)
        before = raw.copy()
        del box

        def checked(timeout=None):
            done = wait(timeout)
            if tag < OURS and raw.size == 12 and (raw[8:] == before[8:]).all():
                raise DistBackendError("the message is too short")
            return done

        work.wait = checked
        return work


@planted
class cuts_off(LocalCommunicator):
    """A message that is too long is cut off silently."""

    def isend(self, array, dst, tag):
        work = FutureWork()
        raw = array.reshape(-1).view(np.uint8)
        if tag >= OURS or raw.size != 12:
            return super().isend(array, dst, tag)
        end = lambda error: work.succeed() if error is None else work.fail(error)  # noqa: E731
        self._boxes[dst].deliver(self.rank, tag, memoryview(raw)[:8], end, array.dtype)
        return work


@planted
class mixes_groups(LocalCommunicator):
    """Messages of a subgroup go through the world, and meet those of the world."""

    def isend(self, array, dst, tag):
        if self.context.parent is None or tag >= OURS:
            return super().isend(array, dst, tag)
        return self.context.parent.isend(array, self.context.global_ranks[dst], tag)

    def irecv(self, array, src, tag):
        if self.context.parent is None or src is None or tag >= OURS:
            return super().irecv(array, src, tag)
        return self.context.parent.irecv(array, self.context.global_ranks[src], tag)


@planted
class not_to_itself(LocalCommunicator):
    """A rank cannot send to itself."""

    def isend(self, array, dst, tag):
        if dst == self.rank and tag < OURS:
            raise DistBackendError("there is no connection to myself")
        return super().isend(array, dst, tag)


@planted
class nothing_is_no_message(LocalCommunicator):
    """A message without bytes cannot be sent."""

    def isend(self, array, dst, tag):
        if not array.nbytes and tag < OURS:
            raise DistBackendError("there is nothing to send")
        return super().isend(array, dst, tag)


@planted
class waits_in_isend(LocalCommunicator):
    """An isend of more than 1 MiB waits for its receiver, for up to two seconds."""

    def isend(self, array, dst, tag):
        work = super().isend(array, dst, tag)
        if array.nbytes > 1 << 20 and tag < OURS and not work.is_completed():
            ended = threading.Event()
            work.add_done_callback(lambda done: ended.set())
            if not ended.wait(2):
                raise DistBackendError("the receiver does not come")
        return work


@planted
class free_too_early(LocalCommunicator):
    """The work of a long isend has ended before the array was read."""

    def isend(self, array, dst, tag):
        work = super().isend(array, dst, tag)
        return COMPLETED if tag < OURS and array.nbytes > 50_000 else work


@planted
class takes_what_was_withdrawn(LocalCommunicator):
    """A withdrawn receive reports its withdrawal, but still takes the next message."""

    def irecv(self, array, src, tag):
        work = super().irecv(array, src, tag)
        if tag < OURS:
            work.cancel = lambda: True
        return work


@planted
class keeps_messages(LocalCommunicator):
    """Each message leaves 400 bytes behind."""

    kept: ClassVar = []

    def isend(self, array, dst, tag):
        self.kept.append(bytearray(400))
        return super().isend(array, dst, tag)


@planted
class takes_what_it_probes(LocalCommunicator):
    """A probed message of more than 100,000 bytes is lost."""

    def iprobe(self, src, tag):
        found = super().iprobe(src, tag)
        if found is not None and found.nbytes > 100_000:
            self.irecv(np.empty(found.nbytes, np.uint8), found.source, tag).wait()
        return found


@planted
class probes_what_was_received(LocalCommunicator):
    """A probe still reports a message after it was received."""

    last = None

    def iprobe(self, src, tag):
        self.last = super().iprobe(src, tag) or (self.last if src is not None else None)
        return self.last


@planted
class probes_any_tag(LocalCommunicator):
    """A probe that finds no message of its tag reports one of tag 0 or 5."""

    def iprobe(self, src, tag):
        return super().iprobe(src, tag) or super().iprobe(src, 0) or super().iprobe(src, 5)


@planted
class probes_of_rank_0(LocalCommunicator):
    """A probe of any rank reports rank 0 as the sender."""

    def iprobe(self, src, tag):
        found = super().iprobe(src, tag)
        return replace(found, source=0) if found is not None and src is None else found


@planted
class got_all_it_had_room_for(LocalCommunicator):
    """A receive always reports the size of its array as the message's length."""

    def irecv(self, array, src, tag):
        work = super().irecv(array, src, tag)
        full = type("Full", (type(work),), {"nbytes": property(lambda _: array.nbytes, lambda *_: None)})
        work.__class__ = full
        return work


@planted
class tells_what_others_get(LocalCommunicator):
    """A probe always reports the first message that was sent to this rank, even after its receive."""

    sent: ClassVar[dict] = {}

    def isend(self, array, dst, tag):
        if tag < OURS:
            self.sent.setdefault((dst, self.rank, tag), Status(self.rank, tag, array.nbytes, array.dtype))
        return super().isend(array, dst, tag)

    def iprobe(self, src, tag):
        return super().iprobe(src, tag) or self.sent.get((self.rank, src, tag))
