"""How soon a job goes on: from a death to the first sum of the smaller world, and from a newcomer's imports to its.

    python benchmarks/elastic_times.py --size 8 --times 30

Each time one process of a job that does small sums is killed, and once the others go on, another is started. The times
are those of the last member to have the sum.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import time

from elastic_company import Company, Member


def summed_at(members: list[Member], size: int) -> float:
    """Return when the last member had the first sum of a world of so many."""
    for member in members:
        member.hear_epoch(size)
    return max(member.hear(lambda word: "summed_in" in word)["at"] for member in members)


def percentile(values: list[float], part: float) -> float:
    """Return the value that so large a part of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def main() -> None:
    """Measure, and print medians and 99th percentiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=8, help="how many ranks")
    parser.add_argument("--times", type=int, default=30, help="how often")
    parser.add_argument("--seed", type=int, default=0, help="which ranks are killed")
    options = parser.parse_args()
    draw, deaths, joins = random.Random(options.seed), [], []
    with Company(options.size, pause=0.02) as job:
        living = list(job.members)
        summed_at(living, options.size)
        for _ in range(options.times):
            shot = living.pop(draw.randrange(len(living)))
            at = time.time()
            shot.send(signal.SIGKILL)
            deaths.append(summed_at(living, options.size - 1) - at)
            newcomer = job.start()
            imported = newcomer.hear(lambda word: "imported" in word)["imported"]
            living.append(newcomer)
            joins.append(summed_at(living, options.size) - imported)
        job.finish()
        for member in living:
            member.hear_end()
    for what, took in (("a death", deaths), ("a newcomer's imports", joins)):
        middle, slow = statistics.median(took), percentile(took, 0.99)
        print(f"from {what} to the sum, {len(took)} times: median {middle:.2f} s, 99th percentile {slow:.2f} s")


if __name__ == "__main__":
    main()
