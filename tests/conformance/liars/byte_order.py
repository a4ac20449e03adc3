"""With five ranks or more, a broadcast turns numbers of the other byte order into the machine's own."""

from honest import spec

from rankwise_local import LocalCommunicator


class Communicator(LocalCommunicator):
    def run(self, call, timeout_s, async_op=False):
        work, array = super().run(call, timeout_s, async_op), call.array
        lies = call.op == "broadcast" and self.size >= 5 and self.rank != call.root
        if lies and array.dtype.kind in "if" and not array.dtype.isnative:
            array.byteswap(inplace=True)
        return work


def rankwise_backend():
    return spec("byte_order", Communicator)
