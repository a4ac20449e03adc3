"""The most frequent words of texts that are divided among the ranks."""

import sys
from collections import Counter

import rankwise as dist

TEXTS = ["the ring and the grid", "a grid of ranks", "ranks send what the ring needs", "the end"] * 25

with dist.world(*sys.argv[1:]) as world:
    mine = dict(Counter(word for place in dist.share(len(TEXTS)) for word in TEXTS[place].split()))
    counts = dist.functional.reduce_objects(mine, lambda one, other: Counter(one) + Counter(other))
    assert counts == Counter(" ".join(TEXTS).split())
    if world.rank() == 0:
        print("right:", sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:3])
