"""Bugs in how groups end: aborts, good-byes, a second life; and in what is declared."""

import threading
import time
from dataclasses import replace
from typing import ClassVar

from honest import planted

from rankwise import BackendSpec, DistBackendError
from rankwise.backends import IN_THREADS, Availability, Capabilities, Device, conditional, native
from rankwise_local import LocalCommunicator
from rankwise_local.communicator import CAPABILITIES


@planted
class aborts_once(LocalCommunicator):
    """A second abort is an error."""

    aborted = False

    def abort(self, error):
        if self.aborted:
            raise DistBackendError("it is aborted already")
        self.aborted = True
        super().abort(error)


@planted
class aborts_slowly(LocalCommunicator):
    """An abort takes six seconds."""

    def abort(self, error):
        time.sleep(6)
        super().abort(error)


@planted
class aborts_everything(LocalCommunicator):
    """An abort of one group ends all groups of the process."""

    alive: ClassVar = []

    def __init__(self, context):
        super().__init__(context)
        self.alive.append(self)

    def abort(self, error):
        for communicator in self.alive:
            LocalCommunicator.abort(communicator, error)


@planted
class loses_small_ones(LocalCommunicator):
    """Small messages that nobody has received yet are lost as their sender destroys the group."""

    def close(self):
        super().close()
        for box in self._boxes:
            for (source, _), message in list(box._messages_from):
                if source == self.rank and len(message.payload) < 100:
                    box._take(message)


@planted
class says_no_good_bye(LocalCommunicator):
    """A rank leaves without telling the others: receives from it wait until they time out."""

    def close(self):
        for box in self._boxes:
            box.keep(self.rank)


@planted
class one_life(LocalCommunicator):
    """In a process that has destroyed a group of three ranks no other can be made of three."""

    ended: ClassVar = set()

    def __init__(self, context):
        if (context.size, context.rank) in self.ended and context.size == 3 and context.parent is None:
            raise DistBackendError("the library can be initialised once only")
        super().__init__(context)

    def close(self):
        super().close()
        self.ended.add((self.size, self.rank))


@planted
class keeps_its_first_place(LocalCommunicator):
    """A reconfigured group has its ranks where they stood in it before, in whatever order they are named now."""

    first: ClassVar = threading.local()

    def __init__(self, context):
        places = vars(self.first).setdefault("places", {})
        is_default = context.name == "default"
        place = places.setdefault(context.size, context.rank) if is_default else context.rank
        super().__init__(replace(context, rank=place))


@planted
class closes_the_rest(LocalCommunicator):
    """The end of a subgroup ends what is pending in its parent too."""

    def close(self):
        super().close()
        if self.context.parent is not None:
            self.context.parent.abort(DistBackendError("a subgroup has been closed"))


@planted
class silent_abort(LocalCommunicator):
    """An abort ends pending operations on the aborting rank only."""

    def abort(self, error):
        self._boxes[self.rank].fail(error)


@planted
class waits_for_nobody(LocalCommunicator):
    """What was sent is read from the sender's memory even after it has destroyed the group, and changed its array."""

    def close(self):
        for box in self._boxes:
            box.keep = lambda src: None
        super().close()


def phantom_device():
    """The table offers arrays on a GPU, whether there is one or not."""
    ops = native("send", "recv", "broadcast")
    table = Capabilities("phantom_device", {**CAPABILITIES.devices, "cuda": Device(ops, {})})
    return BackendSpec("phantom_device", 1, table, LocalCommunicator, launch=IN_THREADS, attends=True)


def slow_to_say():
    """Each check whether the backend can run here takes a second."""

    def available():
        time.sleep(1)
        return Availability(True)

    table = Capabilities("slow_to_say", CAPABILITIES.devices)
    return BackendSpec(
        "slow_to_say", 1, table, LocalCommunicator, availability=available, launch=IN_THREADS, attends=True
    )


class _Unwilling(LocalCommunicator):
    def run(self, call, timeout_s, async_op=False):
        if call.op == "gather":
            raise DistBackendError("the driver is missing")
        return super().run(call, timeout_s, async_op)


def condition_that_lies():
    """The condition of gather holds, but gather fails."""
    device = CAPABILITIES.devices["cpu"]
    ops = {**device.ops, **conditional("gather", reason="needs a driver", holds=lambda: True)}
    table = Capabilities("condition_that_lies", {"cpu": Device(ops, device.features)})
    return BackendSpec("condition_that_lies", 1, table, _Unwilling, launch=IN_THREADS, attends=True)


def says_native():
    """An all_reduce that the core derives is declared native."""
    device = CAPABILITIES.devices["cpu"]
    table = Capabilities("says_native", {"cpu": Device({**device.ops, **native("all_reduce")}, device.features)})
    return BackendSpec("says_native", 1, table, LocalCommunicator, launch=IN_THREADS, attends=True)


@planted
class another_error(LocalCommunicator):
    """An abort ends pending operations with the backend's own error."""

    def abort(self, error):
        super().abort(DistBackendError("something went wrong"))


@planted
class takes_any_options(LocalCommunicator):
    """Options of any kind are accepted, and ignored."""

    def __init__(self, context):
        super().__init__(replace(context, options=None))


@planted
class makes_it_in_its_own_time(LocalCommunicator):
    """Making a group waits for the others beyond the deadline."""

    def __init__(self, context):
        super().__init__(context)
        if context.store is None or context.size == 1:
            return
        context.store.set(f"here/{context.rank}", b"")
        context.store.wait([f"here/{peer}" for peer in range(context.size)], 20)
