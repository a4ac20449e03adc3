"""The most frequent words of texts that are divided among the ranks."""

import sys
from collections import Counter

import rankwise as dist

TEXTS = ["the ring and the grid", "a grid of ranks", "ranks send what the ring needs", "the end"] * 25


def counted(texts):
    """Return how often each word is in all texts, of which each rank takes its share."""
    mine = Counter(word for place in dist.share(len(texts)) for word in texts[place].split())
    return dist.functional.reduce_objects(dict(mine), lambda one, other: Counter(one) + Counter(other))


if __name__ == "__main__":
    with dist.world(*sys.argv[1:]) as world:
        counts = counted(TEXTS)
        assert counts == Counter(" ".join(TEXTS).split())
        if world.rank() == 0:
            print("right:", sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:3])
