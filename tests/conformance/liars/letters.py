"""More bugs in messages: whose memory it is, what is too long, what goes to whom."""

import numpy as np
from honest import planted
from messages import OURS, Handing

from rankwise.backends import COMPLETED, as_bytes
from rankwise_local import LocalCommunicator


@planted
class keeps_its_own(LocalCommunicator):
    """A message to oneself is read from the array when it is received, although its work has ended."""

    def isend(self, array, dst, tag):
        if dst != self.rank or tag >= OURS:
            return super().isend(array, dst, tag)
        self._boxes[dst].deliver(dst, tag, as_bytes(array), dtype=array.dtype)
        return COMPLETED


@planted
class keeps_what_is_short(LocalCommunicator):
    """A message of up to 1,000 bytes is read from the array when it is received, although its work has ended."""

    def isend(self, array, dst, tag):
        if array.nbytes > 1_000 or tag >= OURS:
            return super().isend(array, dst, tag)
        self._boxes[dst].deliver(self.rank, tag, as_bytes(array), dtype=array.dtype)
        return COMPLETED


@planted
class refused_and_kept(LocalCommunicator):
    """A message that was refused as too long matches the next receive."""

    def isend(self, array, dst, tag):
        box, kept = self._boxes[dst], bytes(as_bytes(array))
        if tag >= OURS:
            return super().isend(array, dst, tag)

        def stays(error):
            if error is not None and "bytes" in str(error):
                lines = box._messages_from
                box.deliver(self.rank, tag, kept[: len(kept) // 3 * 2], dtype=array.dtype)
                for _, line in lines._lines.items():
                    line.move_to_end(next(reversed(line)), last=False)

        box.deliver(self.rank, tag, kept, stays, array.dtype)
        return COMPLETED


@planted
class anyone_of_any_tag(LocalCommunicator):
    """A message matches a receive from any rank that waits for another tag."""

    def isend(self, array, dst, tag):
        waiting = [t for (src, t), _ in list(self._boxes[dst]._receives) if src is None and t < OURS]
        return super().isend(array, dst, min(waiting) if waiting and tag < OURS else tag)


@planted
class lengths_of_31_bits(Handing):
    """A message of more than 2 GiB loses the bytes beyond."""

    def isend(self, array, dst, tag):
        if array.nbytes <= 1 << 31:
            return super().isend(array, dst, tag)
        self._boxes[dst].deliver(self.rank, tag, as_bytes(array)[: 1 << 31].tobytes(), dtype=array.dtype)
        return COMPLETED


@planted
class anyone_but_the_last(LocalCommunicator):
    """A waiting receive from any rank ignores messages from the last rank of a group of three."""

    def isend(self, array, dst, tag):
        box = self._boxes[dst]
        waits = any(src is None for (src, t), _ in list(box._receives) if t == tag)
        if tag < OURS and waits and self.rank == 2 and self.size == 3:
            box.deliver(self.rank, tag + 1, bytes(as_bytes(array)), dtype=array.dtype)
            return COMPLETED
        return super().isend(array, dst, tag)


@planted
class first_come(LocalCommunicator):
    """If two receives wait for the same message, the one that began last gets it."""

    def isend(self, array, dst, tag):
        box = self._boxes[dst]
        if tag < OURS:
            with box._lock:
                line = box._receives._lines.get((self.rank, tag))
                if line and len(line) > 1:
                    line.move_to_end(next(reversed(line)), last=False)
        return super().isend(array, dst, tag)


@planted
class one_sided_bytes(Handing):
    """A message of 4,097 bytes loses its first one."""

    def handed(self, array, dst, tag):
        if array.nbytes != 4_097 or tag >= OURS:
            return array
        return np.roll(array, -1)
