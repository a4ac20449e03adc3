"""Objects that are handed from rank to rank, and groups of all shapes to do it in."""

from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from side_programs.table import each, numbers, programs, refusal


class _Own:
    """An object of a class of one's own."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"own {self.value}"


_OBJECTS = {
    "numbers": lambda rank: 7 * rank,
    "nothing": lambda rank: None,
    "words": lambda rank: "wörter" * (rank + 1),
    "long": lambda rank: bytes([rank]) * (100_000 * (rank + 1)),
    "nested": lambda rank: {"a": [1, (2.5, rank)], "b": {rank}},
    "tensors": lambda rank: {"x": torch.arange(4.0) + rank},
    "a class": _Own,
    "exceptions": lambda rank: repr(ValueError(rank)),
}


@programs("objects", each(_OBJECTS))
@programs("objects, four ranks", each(("nested", "long")), size=4)
def objects(name):
    """Hand them on by each call for objects."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine, everybody, there = _OBJECTS[name](rank), [None] * size, [None] * size if rank == 0 else None
    dist.all_gather_object(everybody, mine)
    dist.gather_object(mine, there, 0)
    of_one = [_OBJECTS[name](0), rank, "x"] if rank == 0 else [None] * 3
    dist.broadcast_object_list(of_one, 0)
    part = [None]
    dist.scatter_object_list(part, [_OBJECTS[name](other) for other in range(size)] if rank == 1 else [None] * size, 1)
    return everybody, there, of_one, part


@programs("objects, messages", each(_OBJECTS))
def object_messages(name):
    """Send objects to one rank."""
    got = [None, None]
    if dist.get_rank() == 0:
        dist.send_object_list([_OBJECTS[name](0), 1], 1)
    else:
        return dist.recv_object_list(got, 0), got
    return None


@programs("objects, groups", each(("by global ranks", "by ranks in the group")), size=4)
def objects_in_groups(name):
    """Hand them on within pairs of the four."""
    rank = dist.get_rank()
    first = rank - rank % 2
    group = dist.new_group([first, first + 1], use_local_synchronization=True)
    known = {"group_src": 0} if "in the group" in name else {"src": first}
    to = {"group_dst": 0} if "in the group" in name else {"dst": first}
    everybody, there, part = [None] * 2, [None] * 2 if rank == first else None, [None]
    of_one = [rank if rank == first else None]
    dist.all_gather_object(everybody, rank, group=group)
    dist.gather_object(rank, there, group=group, **to)
    dist.broadcast_object_list(of_one, group=group, **known)
    dist.scatter_object_list(part, ["a", "b"] if rank == first else None, group=group, **known)
    return everybody, there, of_one, part


@programs("objects, mistakes", each(("what cannot be pickled", "no list at the root", "no list to fill")))
def object_mistakes(name):
    """Make a mistake on all ranks."""
    if name == "what cannot be pickled":
        return refusal(lambda: dist.all_gather_object([None] * 2, lambda: 1))
    if name == "no list at the root":
        return refusal(lambda: dist.gather_object(1, None, dist.get_rank()))
    return refusal(lambda: dist.scatter_object_list([], [1, 2], dist.get_rank()))


_GROUPS = {
    "all": lambda: dist.new_group(),
    "one each": lambda: dist.new_subgroups(1)[0],
    "pairs": lambda: dist.new_subgroups(2)[0],
    "pairs, named": lambda: dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])[0],
    "backwards": lambda: dist.new_group([3, 2, 1, 0]),
    "backwards, as they are": lambda: (
        dist.new_group([3, 1, 0, 2], sort_ranks=False)
        if "sort_ranks" in dist.new_group.__code__.co_varnames
        else dist.new_group([3, 1, 0, 2])
    ),
    "three": lambda: dist.new_group([0, 1, 3]),
    "described": lambda: dist.new_group([0, 1], group_desc="a pair"),
    "with a time-out": lambda: dist.new_group(timeout=timedelta(seconds=9)),
    "where they are alone": lambda: dist.new_group([dist.get_rank()], use_local_synchronization=True),
}


@programs("groups", each(_GROUPS), size=4)
def groups(name):
    """Make a group, ask it who is in it, call in it, and end it."""
    group = _GROUPS[name]()
    if group is None or group is dist.GroupMember.NON_GROUP_MEMBER:
        return "not in it", dist.get_rank(group), dist.get_world_size(group)
    ranks, mine = dist.get_process_group_ranks(group), dist.get_rank(group)
    total, here = numbers(3), numbers(2)
    dist.all_reduce(total, group=group)
    dist.broadcast(here, group=group, group_src=group.size() - 1)
    rows = [torch.empty(2) for _ in ranks]
    dist.all_gather(rows, numbers(2), group=group)
    seen = [ranks, mine, group.size(), dist.get_world_size(group), group.group_desc if name == "described" else ""]
    seen += [dist.get_global_rank(group, mine), dist.get_group_rank(group, dist.get_rank())]
    dist.destroy_process_group(group)
    return seen, total, here, rows


@programs("groups, many", {"one after the other": {"kept": False}, "at once": {"kept": True}})
def many_groups(kept):
    """Make many groups."""
    seen, made = [], []
    for i in range(20):
        group = dist.new_group()
        tensor = numbers(2) + i
        dist.all_reduce(tensor, group=group)
        seen.append(tensor)
        if kept:
            made.append(group)
        else:
            dist.destroy_process_group(group)
    return seen, len(made)


_GROUP_MISTAKES = {
    "no such rank": lambda: dist.new_group([0, 7]),
    "a rank twice": lambda: dist.new_group([0, 0, 1]),
    "too many": lambda: dist.new_group([0, 1, 2, 3]),
    "subgroups that do not fit": lambda: dist.new_subgroups(3),
    "subgroups that overlap": lambda: dist.new_subgroups_by_enumeration([[0, 1], [1]]),
    "once more": lambda: dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1),
    "both kinds of rank": lambda: dist.broadcast(numbers(1), src=0, group_src=0),
    "no kind of rank": lambda: dist.broadcast(numbers(1)),
}


@programs("groups, mistakes", each(_GROUP_MISTAKES))
def group_mistakes(name):
    """Ask for what cannot be."""
    return refusal(_GROUP_MISTAKES[name])


@programs("groups, tags", each(("found again", "by another tag", "by ranks", "the default's")))
def tagged(name):
    """Find groups by what they are tagged with."""
    ranks = list(range(dist.get_world_size()))
    made = c10d._new_group_with_tag(ranks, pg_tag="one")
    if name == "found again":
        return c10d._new_group_with_tag(ranks, pg_tag="one") is made, c10d._get_group_tag(made)
    if name == "by another tag":
        return c10d._new_group_with_tag(ranks, pg_tag="two") is made
    if name == "by ranks":
        return c10d._find_or_create_pg_by_ranks_and_tag("one", ranks, len(ranks)) is made
    return c10d._find_pg_by_ranks_and_tag("", ranks) is dist.group.WORLD


@programs("groups, ends", each(("again", "twice", "a call afterwards", "many left")))
def ends(name):
    """End groups, and begin again."""
    group = dist.new_group()
    if name == "again":
        dist.destroy_process_group(group)
        group = dist.new_group()
        tensor = numbers(2)
        dist.all_reduce(tensor, group=group)
        return tensor
    if name == "many left":
        return [dist.new_group().size() for _ in range(3)]
    dist.barrier(group)
    dist.destroy_process_group(group)
    if name == "twice":
        return refusal(lambda: dist.destroy_process_group(group))
    return refusal(lambda: dist.get_process_group_ranks(group))


@programs("stores", each(("set and get", "add", "compare_set", "wait in vain", "check", "delete", "many", "append")))
def stores(name):
    """Use the store that the groups meet in."""
    store, rank = dist.PrefixStore("mine/", c10d._get_default_store()), dist.get_rank()
    if name == "wait in vain":
        return refusal(lambda: store.wait(["nobody"], timedelta(milliseconds=200)))
    if rank == 0:
        store.set("a", "b")
        store.set("c", b"\x00\xff")
    dist.barrier()
    if name == "set and get":
        return store.get("a"), store.get("c")
    if name == "add":
        store.add("count", rank + 1)
        dist.barrier()
        return store.add("count", 0)
    if name == "compare_set":
        return store.compare_set("new", "", "first"), store.compare_set("a", "x", "y")
    if name == "check":
        return store.check(["a"]), store.check(["a", "nobody"])
    if name == "delete":
        store.set(f"mine{rank}", "x")
        return store.delete_key(f"mine{rank}"), store.delete_key("nobody"), store.check([f"mine{rank}"])
    if name == "append":
        store.append(f"mine{rank}", "x")
        store.append(f"mine{rank}", "y")
        return store.get(f"mine{rank}")
    store.multi_set([f"{rank}x", f"{rank}y"], ["1", "2"])
    return store.multi_get([f"{rank}x", f"{rank}y"])
