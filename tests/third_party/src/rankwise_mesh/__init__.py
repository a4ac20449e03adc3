"""A complete backend: one loopback socket for each pair of ranks; every collective is derived."""

import socket
import struct
import threading

from rankwise import BackendSpec, Communicator
from rankwise.arrays import as_bytes
from rankwise.capability import COLLECTIVES, Capabilities, Device, derived, native
from rankwise.errors import PeerDiedError
from rankwise.hookspecs import hookimpl
from rankwise.mailbox import Mailbox
from rankwise.work import COMPLETED

HEADER = struct.Struct("<qQ")  # tag, number of bytes


class MeshCommunicator(Communicator):
    def __init__(self, context):
        super().__init__(context)
        self.mailbox = Mailbox()
        self.sockets = connect_all(context) if context.size > 1 else {}
        self.locks = {peer: threading.Lock() for peer in self.sockets}
        self.readers = [threading.Thread(target=self.read_from, args=(peer,), daemon=True) for peer in self.sockets]
        for reader in self.readers:
            reader.start()

    def isend(self, array, dst, tag):
        payload = as_bytes(array)
        if dst == self.rank:
            self.mailbox.deliver(dst, tag, bytes(payload))
            return COMPLETED
        try:
            with self.locks[dst]:  # the peer's thread always reads, so this never waits for a receive
                self.sockets[dst].sendall(HEADER.pack(tag, payload.nbytes))
                self.sockets[dst].sendall(payload)
        except OSError as error:
            raise self.failure or self.lost(dst) from error
        return COMPLETED

    def irecv(self, array, src, tag):
        return self.mailbox.receive(array, src, tag)

    def close(self):
        self.hang_up()
        for reader in self.readers:
            reader.join()

    def abort(self, error):
        self.mailbox.fail(error)
        self.hang_up()

    def hang_up(self):
        for connection in self.sockets.values():
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the peer was faster

    def read_from(self, peer):
        with self.sockets[peer] as connection, connection.makefile("rb") as stream:
            try:
                while len(header := stream.read(HEADER.size)) == HEADER.size:
                    tag, nbytes = HEADER.unpack(header)
                    self.mailbox.deliver(peer, tag, stream.read(nbytes))
            except OSError:
                pass  # cut off: the same as the end
        self.mailbox.fail(self.lost(peer), src=peer)

    def lost(self, peer):
        return PeerDiedError(self.context.global_ranks[peer], "this host", "its connection was closed")


def connect_all(context):
    """Return a socket to each other rank: each connects to the lower ones and is called by the higher ones."""
    with socket.create_server(("127.0.0.1", 0), backlog=context.size) as server:
        server.settimeout(context.timeout_s)
        context.store.set(f"port/{context.rank}", str(server.getsockname()[1]))
        sockets = {}
        for peer in range(context.rank):
            port = int(context.store.get(f"port/{peer}"))
            sockets[peer] = socket.create_connection(("127.0.0.1", port), context.timeout_s)
            sockets[peer].sendall(HEADER.pack(context.rank, 0))
        while len(sockets) < context.size - 1:
            connection, _ = server.accept()
            sockets[HEADER.unpack(connection.recv(HEADER.size, socket.MSG_WAITALL))[0]] = connection
    for connection in sockets.values():
        connection.settimeout(None)
    return sockets


CAPABILITIES = Capabilities(
    "mesh",
    {
        "cpu": Device(
            ops={**native("send", "recv"), **derived(*COLLECTIVES)},
            features={**native("tags", "any_source", "abort"), **derived("async", "uneven", "timeout", "mismatch")},
        )
    },
)


@hookimpl
def rankwise_backend():
    return BackendSpec("mesh", api_version=1, capabilities=CAPABILITIES, create=MeshCommunicator)
