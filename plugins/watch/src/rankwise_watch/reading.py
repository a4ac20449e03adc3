"""What tools read of a job that is watched: its window, its records, and what is left of it in files."""

from __future__ import annotations

from rankwise_watch.dump import FORMAT as DUMP_FORMAT
from rankwise_watch.dump import GROUP_FOLDER
from rankwise_watch.figures import PORT
from rankwise_watch.recorder import entries, site
from rankwise_watch.sampling import FORMAT as WINDOW_FORMAT
from rankwise_watch.stats import GroupStats, OperationStats, every_group, of_group
from rankwise_watch.verdict import ask
from rankwise_watch.window import NAME, QUESTION, answer_key, wish_key

__all__ = [
    "DUMP_FORMAT",
    "GROUP_FOLDER",
    "GroupStats",
    "NAME",
    "OperationStats",
    "PORT",
    "QUESTION",
    "WINDOW_FORMAT",
    "answer_key",
    "ask",
    "entries",
    "every_group",
    "of_group",
    "site",
    "wish_key",
]
