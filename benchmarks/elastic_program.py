"""What the processes of an elastic job do that is tried: each step adds one to each number, by a sum over all ranks.

Its one argument is JSON: where to meet, if no launcher says so, and terms such as `min_size`. It says in lines of JSON
which epochs it has been in, when its first sum in each was there, which steps are committed if `tells` is set, and
where it ended. A wrong sum or a lost step ends it with an error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import asdict
from typing import Any

import numpy as np
from elastic_company import opened

import rankwise as dist


def say(**words: Any) -> None:
    """Tell who has started this process; in one piece, as several threads do."""
    os.write(1, f"{json.dumps(words)}\n".encode())


def main(terms: dict[str, Any]) -> None:
    """Work until the file `finish` is there."""
    say(imported=time.time())
    place = {}
    if "url" in terms:
        place = {"store": opened(terms["url"]), "rank": terms["rank"], "world_size": terms["size"]}
    dist.init_process_group("gloo", timeout=terms.get("timeout", 60), enable_reconfigure=True, **place)
    state = dist.elastic.State(numbers=np.zeros(terms.get("count", 1000)), step=0, seen=[])
    limits = {name: terms[name] for name in ("min_size", "max_size", "wait_s") if name in terms}
    mine: list[int] = []  # the steps that this process has made itself

    def began(epoch: dist.elastic.Epoch) -> None:
        say(**asdict(epoch), step=state.step)
        sums = np.ones(1)
        dist.all_reduce(sums)
        assert sums[0] == epoch.size, sums
        say(summed_in=epoch.number, at=time.time())

    @dist.elastic.run(on_epoch=began, **limits)
    def work(state: dist.elastic.State) -> int:
        while True:
            assert (state.numbers == state.step).all(), f"step {state.step}: {state.numbers[:3]}"
            assert state.seen == list(range(state.step)), state.seen
            ones = np.ones_like(state.numbers)
            ends = np.array([dist.get_rank() == 0 and os.path.exists(terms["finish"])], np.uint8)
            dist.all_reduce(ones, timeout=terms.get("patience", 60))
            dist.all_reduce(ends, dist.ReduceOp.MAX)
            state.numbers += ones / dist.get_world_size()
            state.seen = [*state.seen, state.step]
            mine.append(state.step)
            state.step += 1
            if len(mine) == terms.get("raises_after"):
                raise ValueError("a mistake of the program")
            committed(state)
            if ends[0]:
                return int(state.step)
            time.sleep(terms.get("pause", 0.005))

    def committed(state: dist.elastic.State) -> None:
        try:
            state.commit()
        finally:
            if terms.get("tells") and state.commits == state.step:
                say(committed=state.step)

    if "notice" in terms:
        dist.elastic.expect_notice(signal.SIGTERM, terms["notice"])
        dist.elastic.on_notice(lambda seconds: say(noticed=seconds))
    say(steps=work(state), commits=state.commits)
    dist.destroy_process_group()


main(json.loads(sys.argv[1]))
