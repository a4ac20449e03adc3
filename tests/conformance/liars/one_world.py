"""All groups that are not made from another share their mailboxes, as if there were one world."""

from honest import spec

from rankwise_local import LocalCommunicator

_boxes_of_the_world = {}


class Communicator(LocalCommunicator):
    def __init__(self, context):
        super().__init__(context)
        if context.parent is None:
            self._boxes = _boxes_of_the_world.setdefault(context.size, self._boxes)

    def close(self):
        """Leave the mailboxes open, or the next group would find them closed."""


def rankwise_backend():
    return spec("one_world", Communicator)
