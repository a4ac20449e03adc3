"""Bugs that only processes show, planted into the example of `docs/writing-a-backend.md`."""

import contextlib
import os
import sys
import tempfile
import threading
from pathlib import Path

from rankwise import BackendSpec, DistError
from rankwise.backends import COMPLETED, Capabilities, Device

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

    def isend(self, array, dst, tag):
        """Send, and do not say so if nobody takes it any more."""
        with contextlib.suppress(DistError):
            return super().isend(array, dst, tag)
        return COMPLETED

    def peer_died(self, rank, error):
        return True


@_mesh
class keeps_descriptors(rankwise_mesh.MeshCommunicator):
    """Each group leaves a descriptor open."""

    def close(self):
        super().close()
        os.open(os.devnull, os.O_RDONLY)


@_mesh
class keeps_files(rankwise_mesh.MeshCommunicator):
    """Each group leaves a temporary folder behind."""

    def __init__(self, context):
        super().__init__(context)
        tempfile.mkdtemp()


@_mesh
class keeps_threads(rankwise_mesh.MeshCommunicator):
    """Each group leaves a thread behind."""

    def close(self):
        super().close()
        threading.Thread(target=threading.Event().wait, daemon=True).start()


class _Outliving(rankwise_mesh.MeshCommunicator):
    """The example, made to act on a death: what it reads to the end of a connection is all that it needs."""

    def peer_died(self, rank, error):
        return True


@_mesh
class loses_what_had_come(_Outliving):
    """What a dead rank had sent, and was not received yet, is lost."""

    def peer_died(self, rank, error):
        box = self.mailbox
        with box._lock:
            for message in [message for (source, _), message in box._messages_from if source == rank]:
                box._take(message)
        box.fail(error, src=rank)
        return True


@_mesh
class ends_the_living(_Outliving):
    """The death of a rank ends the messages of the others too, although the backend says that it acts on it."""

    def peer_died(self, rank, error):
        self.mailbox.fail(error)
        return True


@_mesh
class deaf_after_a_death(_Outliving):
    """After the death of a rank nothing more can be sent."""

    dead = False

    def peer_died(self, rank, error):
        self.dead = True
        return True

    def isend(self, array, dst, tag):
        if self.dead:
            raise self.lost(dst)
        return super().isend(array, dst, tag)


@_mesh
class leaves_its_thread(rankwise_mesh.MeshCommunicator):
    """Each group that cannot be made leaves a thread behind."""

    def __init__(self, context):
        threading.Thread(target=threading.Event().wait, daemon=True, name="engine").start()
        super().__init__(context)


@_mesh
class leaves_its_socket(rankwise_mesh.MeshCommunicator):
    """Each group that cannot be made leaves two descriptors open."""

    def __init__(self, context):
        self.opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
        super().__init__(context)

    def close(self):
        super().close()
        for descriptor in self.opened:
            os.close(descriptor)
