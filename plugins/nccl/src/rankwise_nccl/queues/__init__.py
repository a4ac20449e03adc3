"""A queue, one communicator of NCCL and its stream: how it starts, what runs on it, and which a group has."""
