"""A shortcut notes the end of every call, also of one that has failed."""

from honest import spec

from rankwise.backends import Call
from rankwise.backends.fast_calls import Shortcuts
from rankwise_local import LocalCommunicator


class Communicator(LocalCommunicator):
    def shortcuts(self, group):
        def all_reduce(array, op, timeout):
            if self.failure is not None:
                return False
            group.trail.begin("all_reduce", array)
            try:
                self.run(Call("all_reduce", array, op), group.timeout_s).wait()
            finally:
                group.trail.end()
            return True

        return Shortcuts(all_reduce=all_reduce)


def rankwise_backend():
    return spec("ends_well", Communicator)
