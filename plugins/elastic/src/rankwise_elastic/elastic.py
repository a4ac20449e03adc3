"""Jobs whose ranks come and go: `regroup` for their membership, `State` and `run` for what they work on.

import rankwise as dist

dist.init_process_group("gloo", enable_reconfigure=True)
state = dist.elastic.State(weights=weights, step=0)

@dist.elastic.run(min_size=2)
def train(state):
    while state.step < 1000:
        ...
        state.step += 1
        state.commit()

train(state)
"""

from __future__ import annotations

from rankwise_elastic.membership import Epoch, Finished, Gone, Newcomer, is_awaited, regroup, remake
from rankwise_elastic.notices import Left, expect_notice, leaving, on_notice, seconds_left
from rankwise_elastic.running import run
from rankwise_elastic.state import MembershipChange, State

__all__ = [
    "Epoch",
    "Finished",
    "Gone",
    "Left",
    "MembershipChange",
    "Newcomer",
    "State",
    "expect_notice",
    "is_awaited",
    "leaving",
    "on_notice",
    "regroup",
    "remake",
    "run",
    "seconds_left",
]
