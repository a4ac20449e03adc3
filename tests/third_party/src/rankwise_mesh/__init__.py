"""A complete backend: a loopback socket for each pair of ranks; every collective is derived."""

import contextlib
import socket
import struct
import threading

from rankwise import BackendSpec, Communicator, PeerDiedError
from rankwise.backends import COLLECTIVES, COMPLETED, Capabilities, Device, Mailbox, as_bytes, derived, hookimpl, native

HEADER, GOODBYE = struct.Struct("<qQ"), -1  # tag, number of bytes
OPS = {**native("send", "recv"), **derived(*COLLECTIVES)}
FEATURES = native("tags", "any_source", "short_messages", "abort")
FEATURES |= derived("async", "uneven", "sparse", "timeout", "mismatch")


class MeshCommunicator(Communicator):
    def __init__(self, context):
        super().__init__(context)
        context.options_as(type(None))  # or the class of your options
        self.mailbox, self.lock = Mailbox(context.global_ranks), threading.Lock()
        self.sockets = connect_all(context)
        self.readers = [threading.Thread(target=self.read_from, args=(p,), daemon=True) for p in self.sockets]
        for reader in self.readers:
            reader.start()

    def isend(self, array, dst, tag):
        payload = as_bytes(array)
        if dst == self.rank:
            self.mailbox.deliver(dst, tag, bytes(payload))
            return COMPLETED
        try:
            with self.lock:  # the peer's thread always reads, so this never waits for a receive
                self.sockets[dst].sendall(HEADER.pack(tag, payload.nbytes))
                self.sockets[dst].sendall(payload)
        except OSError as error:
            raise self.failure or self.lost(dst) from error
        return COMPLETED

    def irecv(self, array, src, tag):
        return self.mailbox.receive(array, src, tag)

    def abort(self, error):
        self.mailbox.fail(error)
        for connection in self.sockets.values():
            with contextlib.suppress(OSError):  # the peer may have been faster
                connection.shutdown(socket.SHUT_RDWR)

    def close(self):
        for connection in self.sockets.values():
            with contextlib.suppress(OSError):
                connection.sendall(HEADER.pack(GOODBYE, 0))
        self.abort(self.lost(self.rank))
        for reader in self.readers:
            reader.join()

    def read_from(self, peer):
        with self.sockets[peer], self.sockets[peer].makefile("rb") as stream, contextlib.suppress(OSError):
            while len(header := stream.read(HEADER.size)) == HEADER.size:
                tag, nbytes = HEADER.unpack(header)
                if tag == GOODBYE:
                    break
                if len(payload := stream.read(nbytes)) == nbytes:
                    self.mailbox.deliver(peer, tag, payload)
        self.mailbox.fail(self.lost(peer), src=peer)  # ranks that need the peer fail, then ranks that need those

    def lost(self, peer):
        return PeerDiedError(self.context.global_ranks[peer], "this host", "its connection was closed")


def connect_all(context):
    """Connect to the lower ranks, and be called by the higher ones."""

    def called(wait_s):
        server.settimeout(wait_s)
        connection, _ = server.accept()
        connection.settimeout(context.deadline.remaining())
        return HEADER.unpack(connection.recv(HEADER.size, socket.MSG_WAITALL))[0], connection

    with socket.create_server(("127.0.0.1", 0), backlog=context.size) as server:
        context.store.set(f"port/{context.rank}", str(server.getsockname()[1]))
        ports = [int(context.fetch(f"port/{peer}", peer)) for peer in range(context.rank)]
        sockets = {peer: socket.create_connection(("127.0.0.1", port)) for peer, port in enumerate(ports)}
        for connection in sockets.values():
            connection.sendall(HEADER.pack(context.rank, 0))
        while missing := set(range(context.size)) - {context.rank, *sockets}:
            sockets.update([context.wait(called, missing)])
    for connection in sockets.values():
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # do not hold small messages back
    return sockets


@hookimpl
def rankwise_backend():
    table = Capabilities("mesh", {"cpu": Device(OPS, FEATURES)})
    return BackendSpec("mesh", api_version=1, capabilities=table, create=MeshCommunicator)
