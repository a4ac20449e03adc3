"""What works on every system: importing everything, ranks as threads, objects and tables."""

import importlib
import pkgutil
import platform

import numpy as np

import rankwise as dist
from rankwise_local import local_world

#: Programs, and modules for processes that another starts.
LEFT_OUT = ("__main__", "suite", "worker", "guard")

for module in pkgutil.walk_packages(dist.__path__, "rankwise."):
    if not set(module.name.split(".")) & set(LEFT_OUT):
        importlib.import_module(module.name)


def program():
    array = np.full(3, dist.get_rank() + 1.0)
    dist.all_reduce(array)
    objects = [None] * dist.get_world_size()
    dist.all_gather_object(objects, {"rank": dist.get_rank(), "array": array, "text": "é"})
    group = dist.new_group([0, 2])
    if group != dist.GroupMember.NON_GROUP_MEMBER:
        dist.barrier(group)
    return array.tolist(), [told["rank"] for told in objects]


with local_world(3) as ranks:
    assert ranks.run(program) == [([6.0] * 3, [0, 1, 2])] * 3

with dist.HashStore() as store:
    store.set("key", "value")
    assert store.get("key") == b"value"

assert "all_reduce" in str(dist.capabilities())
assert dist.supports("all_reduce", "cpu", "int16", backend="gloo") == (platform.system() != "Windows")
dist.init_process_group("local", rank=0, world_size=1)
dist.barrier()
dist.destroy_process_group()
print("all of it")
