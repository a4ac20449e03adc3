"""Bugs that only processes show, planted into the example of `docs/writing-a-backend.md`."""

import os
import sys
import threading
from pathlib import Path

from rankwise import BackendSpec
from rankwise.backends import Capabilities, Device

sys.path.append(str(Path(__file__).parents[2] / "third_party" / "src"))

import rankwise_mesh


def _mesh(cls):
    def declare():
        table = Capabilities(cls.__name__, {"cpu": Device(rankwise_mesh.OPS, rankwise_mesh.FEATURES)})
        return BackendSpec(cls.__name__, 1, table, cls)

    declare.__doc__ = cls.__doc__
    return declare


@_mesh
class no_notice_of_death(rankwise_mesh.MeshCommunicator):
    """The backend claims to act on the death of a rank, and does nothing."""

    def read_from(self, peer):
        """Read, and tell nobody that nothing comes any more."""
        fail, self.mailbox.fail = self.mailbox.fail, lambda error, src=None: None if src is not None else fail(error)
        super().read_from(peer)

    def peer_died(self, rank, error):
        return True


@_mesh
class keeps_descriptors(rankwise_mesh.MeshCommunicator):
    """Each group leaves a descriptor open."""

    def close(self):
        super().close()
        os.open(os.devnull, os.O_RDONLY)


@_mesh
class keeps_threads(rankwise_mesh.MeshCommunicator):
    """Each group leaves a thread behind."""

    def close(self):
        super().close()
        threading.Thread(target=threading.Event().wait, daemon=True).start()
