"""The start of a lane over several devices: every device of every rank becomes a rank of NCCL."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rankwise.errors import CollectiveMismatchError, DistBackendError
from rankwise_nccl.lanes.startup import Note, Start
from rankwise_nccl.library.api import grouped

__all__ = ["DevicesStart"]


class DevicesStart(Start):
    """Makes one communicator on each of this rank's devices."""

    def make(self, unique_id: bytes, size: int, place: int) -> tuple[Any, ...]:
        """Make them in one group, as each waits for all others; the devices of a rank are neighbours."""
        nccl, each = self._api.nccl, len(self._devices)
        comms = []  # outlives the group, at whose end NCCL writes into them
        with grouped(nccl):
            for i, device in enumerate(self._devices):
                with self._api.cuda.Device(device):
                    comms.append(nccl.NcclCommunicator(size * each, unique_id, place * each + i))
        return tuple(comms)

    def compare(self, notes: dict[int, Note]) -> None:
        """Raise unless all ranks give each of their devices once, and equally many."""
        group = self._context.name
        twice = [rank for rank, note in notes.items() if len(set(note["gpus"])) < len(note["gpus"])]
        if twice:
            # They make another call in this one's place, and learn of this error by the end of the group alone.
            raise DistBackendError(
                f"the ranks of group {group!r} give their arrays differently: on {_named(twice)} several lie on one "
                "GPU, on the others each on a GPU of its own"
            )
        counts = {rank: len(note["gpus"]) for rank, note in notes.items()}
        if len(set(counts.values())) > 1:
            told = "; ".join(
                f"{_named([rank for rank in counts if counts[rank] == count])} {count}"
                for count in sorted(set(counts.values()))
            )
            raise CollectiveMismatchError(
                f"the ranks of group {group!r} do not give equally many devices: {told}", _odd(counts)
            )


def _odd(counts: dict[int, int]) -> tuple[int, ...]:
    """Return the ranks that differ from the majority, or all if there is none."""
    (usual, ranks), *others = Counter(counts.values()).most_common()
    if others and others[0][1] == ranks:
        return tuple(counts)
    return tuple(rank for rank, count in counts.items() if count != usual)


def _named(ranks: list[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"
